# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, pure: from Settings every process with node, argv, environment, ports; above `config`.

--dry_run prints the whole plan; tests check it without a connection.
"""
