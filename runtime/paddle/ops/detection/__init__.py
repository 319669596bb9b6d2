# SPDX-License-Identifier: Apache-2.0
"""Detection: boxes that priors suggest, matched, coded, chosen, scored and pooled; on the floor above `base`."""
