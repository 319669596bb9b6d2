# SPDX-License-Identifier: Apache-2.0
"""Metrics of a batch: accuracy, area under the curve, chunks, edit distance, IoU; depends only on `base`."""
