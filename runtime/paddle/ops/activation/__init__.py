# SPDX-License-Identifier: Apache-2.0
"""Activations: functions of single elements or along an axis; depends only on `base`."""
