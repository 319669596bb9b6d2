# SPDX-License-Identifier: Apache-2.0
"""The engines, which start agents by SSH, as child processes, or through mpirun, srun or Kubernetes."""
