# SPDX-License-Identifier: Apache-2.0
"""The state of servers on disk: copied while training continues, published whole or not at all, checked when read."""
