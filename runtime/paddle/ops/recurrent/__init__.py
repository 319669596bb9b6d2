# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: LSTM, GRU, their single steps, unrolled bodies; depends on `activation` and `math`."""
