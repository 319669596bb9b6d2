# SPDX-License-Identifier: Apache-2.0
"""The screen: prints a job's messages to the terminal and to its logs. Depends on `nodes`.

`console` is the only module that prints; it uses a dedicated thread.
"""
