# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.pserver` measures, a module for each side: raw sockets, our servers, the machine's limits, peers."""
