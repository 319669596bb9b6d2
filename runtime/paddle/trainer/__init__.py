# SPDX-License-Identifier: Apache-2.0
"""The implementation of `paddle train`: configuration files, data providers, passes, and the files saved
after each pass."""
