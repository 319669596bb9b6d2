# SPDX-License-Identifier: Apache-2.0
"""The table of engines: what starts agents by logins, as children, or by mpirun, srun and Kubernetes; above `ssh`"""
