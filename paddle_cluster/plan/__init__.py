# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, made without side effects: each process's node, arguments and ports. Depends on `config`.

--dry_run prints the whole plan; tests check it without a connection.
"""
