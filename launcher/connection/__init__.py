# SPDX-License-Identifier: Apache-2.0
"""Connections to agents: frames to and from one agent, whatever carries them; above `plan`."""
