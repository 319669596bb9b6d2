# SPDX-License-Identifier: Apache-2.0
"""The nodes of a job: connections, queries, answers, and the preflight checks. Depends on `files`.

`loop` owns the state of a job (`roster`) and handles every event; `checks/` and `preflight` only evaluate answers.
"""
