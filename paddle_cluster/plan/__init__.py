# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, pure: from Settings every process with node, argv, environment, ports; above `config`.

Everything in it is printed by --dry_run and tested before the first connection.
"""
