# SPDX-License-Identifier: Apache-2.0
"""The client of parameter servers: tensors, sessions, requests to several servers; above `durable`, beside `server`."""
