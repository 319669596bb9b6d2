# SPDX-License-Identifier: Apache-2.0
"""The nodes of a job: queries, their answers, and the checks of preflight; above `files`.

`loop` owns the state of a job (`roster`) and handles every event; `checks/` and `preflight` only judge answers.
"""
