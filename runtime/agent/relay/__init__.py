# SPDX-License-Identifier: Apache-2.0
"""Files on their way between the nodes of one job; on `link` and `files`."""
