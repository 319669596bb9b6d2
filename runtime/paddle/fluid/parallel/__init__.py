# SPDX-License-Identifier: Apache-2.0
"""Training on several devices and ranks: splits batches, and sums or averages results. Depends on `remote`."""
