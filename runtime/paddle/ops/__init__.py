# SPDX-License-Identifier: Apache-2.0
"""Operators by family, a folder each; the table in `ops.base.registry` loads those that a program names.

A module in a family's folder is found without being named anywhere; `base` is what families import when they need it.
"""
