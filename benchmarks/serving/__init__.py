# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.pserver` measures, one module per side: raw sockets, our servers, the machine's limits, peers."""
