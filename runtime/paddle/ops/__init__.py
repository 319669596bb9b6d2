# SPDX-License-Identifier: Apache-2.0
"""The operators, one folder per family, which register themselves in the table of `ops.base.registry`.

A new module in a family's folder is loaded automatically; families import shared functions from `base`.
"""
