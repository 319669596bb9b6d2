# SPDX-License-Identifier: Apache-2.0
"""Connections to agents, over which frames are exchanged. Depends on `plan` and lower layers.

Only `shell` generates shell commands; `bootstrap` packs the agent's source for nodes; `reactor` runs the few threads
that all links share.
"""
