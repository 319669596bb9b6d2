# SPDX-License-Identifier: Apache-2.0
"""The run of a job, phase by phase; above `control`."""
