# SPDX-License-Identifier: Apache-2.0
"""Operators that access rows of tables by id, or communicate with parameter servers. Depends only on `base`."""
