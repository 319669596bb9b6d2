# SPDX-License-Identifier: Apache-2.0
"""The side of programs: tensors, sessions, a request to each of several servers; above `durable`, beside `server`."""
