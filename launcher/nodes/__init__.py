# SPDX-License-Identifier: Apache-2.0
"""The nodes: what they are asked, what is known of each, and how it is judged; above `files`."""
