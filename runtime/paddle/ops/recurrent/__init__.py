# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: LSTM, GRU, their single steps, bodies unrolled over steps; above `activation` and `math`."""
