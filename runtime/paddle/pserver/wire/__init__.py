# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire, and what both ends must agree on: messages, arrays, placement, keys; above `sparse`."""
