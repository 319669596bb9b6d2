# SPDX-License-Identifier: Apache-2.0
"""The operators, one folder per family; importing this package fills the table in `ops.base.registry`.

A new module in a family's folder is loaded automatically; families import shared functions from `base`.
"""
