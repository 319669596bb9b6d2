# SPDX-License-Identifier: Apache-2.0
"""Sides of the training benchmark."""
