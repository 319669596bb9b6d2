# SPDX-License-Identifier: Apache-2.0
"""Supervisor of one node: starts, watches and stops a job's processes there.

Travels as text over the launcher's connection and is imported from memory; needs nothing but the standard
library of Python 3.8.
"""
