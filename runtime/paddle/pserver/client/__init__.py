# SPDX-License-Identifier: Apache-2.0
"""The client side of parameter servers: declared tensors, sessions, and requests to several servers.

Depends on `durable`, not on `server`.
"""
