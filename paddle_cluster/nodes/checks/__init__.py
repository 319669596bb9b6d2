# SPDX-License-Identifier: Apache-2.0
"""The preflight checks, one family per module.

They evaluate the nodes' answers, and neither send nor print anything.
"""
