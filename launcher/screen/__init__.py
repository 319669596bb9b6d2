# SPDX-License-Identifier: Apache-2.0
"""The screen: what the terminal and the logs show of a job; above `nodes`."""
