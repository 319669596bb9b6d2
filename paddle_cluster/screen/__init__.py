# SPDX-License-Identifier: Apache-2.0
"""The screen: what a job prints to the terminal and to its logs; above `nodes`.

`console` is the only module that prints; it uses a dedicated thread.
"""
