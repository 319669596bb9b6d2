# SPDX-License-Identifier: Apache-2.0
"""Programs and values in files of the original's formats; above `run`."""
