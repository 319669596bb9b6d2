# SPDX-License-Identifier: Apache-2.0
"""Ways of a message: ZeroMQ, a stream beside it, shared memory; a Transport and a Listener each; above `wire`."""
