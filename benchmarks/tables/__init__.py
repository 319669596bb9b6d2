# SPDX-License-Identifier: Apache-2.0
"""The measurements of `benchmarks.sparse`, and the peers that it is compared with."""
