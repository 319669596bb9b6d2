# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.sparse` measures, and the peers it is compared with."""
