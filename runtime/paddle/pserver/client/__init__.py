# SPDX-License-Identifier: Apache-2.0
"""Clients of parameter servers: tensors, sessions, requests to several servers.

Depends on `durable`, not on `server`.
"""
