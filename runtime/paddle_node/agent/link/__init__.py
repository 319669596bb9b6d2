# SPDX-License-Identifier: Apache-2.0
"""The stream to the launcher, and the agent's event loop; the lowest layer."""
