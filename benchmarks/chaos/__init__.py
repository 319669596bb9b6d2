# SPDX-License-Identifier: Apache-2.0
"""Injects faults at random moments of whole jobs, and judges the outcome on the hosts, not by the launcher's
output."""
