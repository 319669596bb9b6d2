# SPDX-License-Identifier: Apache-2.0
"""The part of the original's C++ interface, ``py_paddle``, that scripts use to predict, or to train batch by batch."""
