# SPDX-License-Identifier: Apache-2.0
"""Transports: shared memory, TCP, ZeroMQ; a Connection and a Listener each, and the table of them; above `wire`."""
