# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.collective` measures: our ranks, those of torch.distributed (gloo) and those of MPI."""
