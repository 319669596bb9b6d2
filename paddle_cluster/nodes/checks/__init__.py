# SPDX-License-Identifier: Apache-2.0
"""The checks of preflight, one family per module: they judge the nodes' answers, without queries or output."""
