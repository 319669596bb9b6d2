# SPDX-License-Identifier: Apache-2.0
"""The nodes: queries to them, known facts about each, and checks; above `files`.

`loop` owns the state of a job (`roster`) and handles every event; `checks/` and `preflight` judge and ask nothing.
"""
