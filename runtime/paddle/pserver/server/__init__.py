# SPDX-License-Identifier: Apache-2.0
"""A server: the threads of its ports, the engine and its services. Depends on `durable`, but not on `client`."""
