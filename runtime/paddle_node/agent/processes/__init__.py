# SPDX-License-Identifier: Apache-2.0
"""The processes of a job on this node, from start to stop; above `link`, beside `files`."""
