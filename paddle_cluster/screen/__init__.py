# SPDX-License-Identifier: Apache-2.0
"""The screen: what the terminal and the logs show of a job; above `nodes`.

`console` is the only place that prints, from a thread of its own.
"""
