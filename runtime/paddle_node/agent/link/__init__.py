# SPDX-License-Identifier: Apache-2.0
"""The stream to the launcher, and the agent's event loop. The lowest layer of the agent."""
