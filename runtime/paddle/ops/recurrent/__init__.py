# SPDX-License-Identifier: Apache-2.0
"""Operators of recurrent layers: LSTM, GRU, their single steps, unrolled bodies. Depends on `activation` and `math`."""
