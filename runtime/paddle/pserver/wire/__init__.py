# SPDX-License-Identifier: Apache-2.0
"""The wire protocol, and what both ends must agree on: messages, arrays, placement, keys; above `sparse`."""
