# SPDX-License-Identifier: Apache-2.0
"""The sides of the training benchmark."""
