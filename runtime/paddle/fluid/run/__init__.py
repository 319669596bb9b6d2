# SPDX-License-Identifier: Apache-2.0
"""Runs programs: places, scopes, tensors, feeding and fetching. Depends on `program`."""
