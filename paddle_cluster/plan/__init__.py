# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, without side effects: each process with its node, arguments and ports; above `config`.

--dry_run prints the whole plan; tests check it without a connection.
"""
