# SPDX-License-Identifier: Apache-2.0
"""The formats on wires and in files that the launcher, the agent and jobs share; above `linux`"""
