# SPDX-License-Identifier: Apache-2.0
"""Losses: one cost per row or sequence, from probabilities, scores, pairs or tags; depends on `activation`."""
