# SPDX-License-Identifier: Apache-2.0
"""The sides of `benchmarks.collective`: our ranks, those of torch.distributed (gloo) and those of MPI."""
