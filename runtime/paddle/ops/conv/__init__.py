# SPDX-License-Identifier: Apache-2.0
"""Windows over images and volumes: convolution, pooling, resizing, channels; on the floor above `shape`."""
