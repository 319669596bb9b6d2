# SPDX-License-Identifier: Apache-2.0
"""The nodes: what they are asked, what is known of each, and how it is judged; above `files`.

`loop` owns the state of a job (`roster`) and handles every event; `checks/` and `preflight` judge and ask nothing.
"""
