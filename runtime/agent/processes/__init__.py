# SPDX-License-Identifier: Apache-2.0
"""The processes of a job on this node: started, listened to, watched and stopped; on `link` and `files`."""
