# SPDX-License-Identifier: Apache-2.0
"""What crosses a wire or lies in a file, as the launcher, the agent and jobs all know it; above `linux`"""
