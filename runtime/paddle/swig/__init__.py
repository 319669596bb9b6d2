# SPDX-License-Identifier: Apache-2.0
"""What scripts use of the original's C++ interface, ``py_paddle``: networks that predict or train by hand."""
