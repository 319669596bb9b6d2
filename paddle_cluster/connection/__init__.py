# SPDX-License-Identifier: Apache-2.0
"""Connections to agents: frames to and from one agent, over any transport; above `plan`.

`shell` alone writes shell text; `bootstrap` is the agent's source on its way; `reactor` has the few
threads of all links.
"""
