# SPDX-License-Identifier: Apache-2.0
"""The relay, which passes files between the nodes of a job. Depends on `files`, but not on `node`."""
