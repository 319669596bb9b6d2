# SPDX-License-Identifier: Apache-2.0
"""Losses: one cost a row or a sequence, from probabilities, scores, pairs or tags; on the floor above `activation`."""
