# SPDX-License-Identifier: Apache-2.0
"""Faults at random moments of whole jobs, judged by observing the hosts and not by the launcher's output."""
