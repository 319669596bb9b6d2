# SPDX-License-Identifier: Apache-2.0
"""The screen: how the terminal and the logs show a job; above `nodes`.

`console` is the only module that prints; it uses a dedicated thread.
"""
