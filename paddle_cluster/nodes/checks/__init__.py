# SPDX-License-Identifier: Apache-2.0
"""The preflight checks, with one module per family of checks.

They evaluate the nodes' answers, and neither send nor print anything.
"""
