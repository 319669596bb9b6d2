# SPDX-License-Identifier: Apache-2.0
"""How agents get started where it is not over SSH: by mpirun, srun or Kubernetes, whose porters call; beside `ssh`"""
