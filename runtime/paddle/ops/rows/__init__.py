# SPDX-License-Identifier: Apache-2.0
"""Table rows by id, and values sent to or fetched from parameter servers; depends only on `base`."""
