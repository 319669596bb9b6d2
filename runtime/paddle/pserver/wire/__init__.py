# SPDX-License-Identifier: Apache-2.0
"""The wire protocol: messages, arrays, placement and keys, which both ends must agree on; above `sparse`."""
