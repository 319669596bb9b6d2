# SPDX-License-Identifier: Apache-2.0
"""Operators on images and volumes: convolution, pooling, resizing, channels; depends on `shape`."""
