# SPDX-License-Identifier: Apache-2.0
"""Operators on table rows by id, and on values of parameter servers; depends only on `base`."""
