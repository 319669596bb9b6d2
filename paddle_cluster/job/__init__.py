# SPDX-License-Identifier: Apache-2.0
"""The run of a job, phase by phase; above `control`.

`beginning` connects, and imports the rest only then; `job` has the phases, `handlers/` what happens on an event,
`recovery` what happens after a failure.
"""
