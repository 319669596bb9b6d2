# SPDX-License-Identifier: Apache-2.0
"""The formats of messages and files that the launcher, the agent and jobs share. Depends on `linux`."""
