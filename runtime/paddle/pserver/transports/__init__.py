# SPDX-License-Identifier: Apache-2.0
"""Transports: shared memory, TCP and ZeroMQ, each with a Connection and a Listener. Depends on `wire`."""
