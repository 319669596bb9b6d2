# SPDX-License-Identifier: Apache-2.0
"""The launcher: runs on the submitting machine, never on nodes."""
