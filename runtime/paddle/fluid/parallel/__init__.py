# SPDX-License-Identifier: Apache-2.0
"""Training over several places and ranks: what is split, summed, averaged and joined; above `remote`."""
