# SPDX-License-Identifier: Apache-2.0
"""The wire protocol, on which both ends must agree: messages, arrays, placement and keys. Depends on `sparse`."""
