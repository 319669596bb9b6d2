# SPDX-License-Identifier: Apache-2.0
"""The submitting machine: its files, processes, threads, clock and signals. Imports no other folder of the launcher."""
