# SPDX-License-Identifier: Apache-2.0
"""Connections to agents: exchange frames with one agent over any transport; above `plan`.

Only `shell` writes shell text; `bootstrap` packs the agent's source for nodes; `reactor` has the few threads that all
links share.
"""
