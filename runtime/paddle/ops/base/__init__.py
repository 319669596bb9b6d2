# SPDX-License-Identifier: Apache-2.0
"""Shared foundations of all operator families: registry, shapes, sequences, sparse rows, compiled loops."""
