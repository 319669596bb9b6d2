# SPDX-License-Identifier: Apache-2.0
"""The submitting machine: its files, processes, threads, clock and signals; the lowest layer, beside `text`."""
