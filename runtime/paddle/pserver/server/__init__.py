# SPDX-License-Identifier: Apache-2.0
"""One server: the threads of its ports, the engine and its services; above `durable`, beside `client`."""
