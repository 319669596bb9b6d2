# SPDX-License-Identifier: Apache-2.0
"""Operators that update a parameter from its gradient, by the rules of `optim`; the top level of `ops`."""
