# SPDX-License-Identifier: Apache-2.0
"""The control of a running job from another terminal: its state directory, its socket, its nodes; above `screen`."""
