# SPDX-License-Identifier: Apache-2.0
"""Training over several places and ranks: splitting, summing, averaging, joining; above `remote`."""
