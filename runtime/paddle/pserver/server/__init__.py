# SPDX-License-Identifier: Apache-2.0
"""One server, from the thread of a port to its engine and what that serves; above `durable`, beside `client`."""
