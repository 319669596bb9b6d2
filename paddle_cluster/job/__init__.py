# SPDX-License-Identifier: Apache-2.0
"""Executes a job, phase by phase. Depends on `control` and lower layers.

`beginning` connects before it imports the rest; `job` contains the phases, `handlers/` the reactions to events,
`recovery` the decisions after a failure.
"""
