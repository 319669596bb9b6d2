# SPDX-License-Identifier: Apache-2.0
"""The part of the original's C++ interface, ``py_paddle``, with which scripts predict, or train batch by batch."""
