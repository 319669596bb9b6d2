# SPDX-License-Identifier: Apache-2.0
"""Files with rows of growing tables, for other programs and for new jobs."""
