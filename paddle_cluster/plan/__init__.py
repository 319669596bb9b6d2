# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, pure: from Settings every process with node, argv, environment, ports; above `config`.

--dry_run prints all of it; tests check it without a connection.
"""
