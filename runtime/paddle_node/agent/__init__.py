# SPDX-License-Identifier: Apache-2.0
"""The agent of one node, which starts, watches and stops a job's processes on that node.

It is sent as text over the launcher's connection and imported from memory; it needs only the standard library of Python
3.8.
"""
