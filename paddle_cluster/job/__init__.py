# SPDX-License-Identifier: Apache-2.0
"""The execution of a job, phase by phase; above `control`.

`beginning` connects before it imports the rest; `job` contains the phases, `handlers/` the reactions to events,
`recovery` the decisions after a failure.
"""
