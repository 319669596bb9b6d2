# SPDX-License-Identifier: Apache-2.0
"""Files of programs and values, in the original's formats; above `run`."""
