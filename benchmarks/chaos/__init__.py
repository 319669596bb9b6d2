# SPDX-License-Identifier: Apache-2.0
"""Faults at random moments of whole jobs, judged by what the hosts show and not by what the launcher says."""
