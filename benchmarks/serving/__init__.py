# SPDX-License-Identifier: Apache-2.0
"""The sides of `benchmarks.pserver`, one per module: raw sockets, our servers, the machine's limits, peers."""
