# SPDX-License-Identifier: Apache-2.0
"""Parts of the benchmarks of killed parameter servers and of checkpoints."""
