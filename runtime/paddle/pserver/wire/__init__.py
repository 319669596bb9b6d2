# SPDX-License-Identifier: Apache-2.0
"""The wire protocol: messages, arrays, placement and keys, on which both ends must agree; above `sparse`."""
