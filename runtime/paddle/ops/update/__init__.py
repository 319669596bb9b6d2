# SPDX-License-Identifier: Apache-2.0
"""Operators that change a parameter by its gradient, with the rules of `optim`; on the top floor of `ops`."""
