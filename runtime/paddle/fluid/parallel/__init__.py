# SPDX-License-Identifier: Apache-2.0
"""Training on several devices and ranks: splitting, summing, averaging, joining; above `remote`."""
