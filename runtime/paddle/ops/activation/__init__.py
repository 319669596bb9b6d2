# SPDX-License-Identifier: Apache-2.0
"""Activations: functions of one value, element by element or along an axis; on the floor above `base`."""
