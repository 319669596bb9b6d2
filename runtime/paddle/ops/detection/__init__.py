# SPDX-License-Identifier: Apache-2.0
"""Detection: prior boxes, matching, encoding, selection, scoring and pooling of boxes; depends only on `base`."""
