# SPDX-License-Identifier: Apache-2.0
"""Formulas of the learning rate, below what a job says of its optimizer (`optim.spec`)."""
