# SPDX-License-Identifier: Apache-2.0
"""Rows of tables by id, and what is sent to parameter servers or fetched from them; on the floor above `base`."""
