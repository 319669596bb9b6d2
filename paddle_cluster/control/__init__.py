# SPDX-License-Identifier: Apache-2.0
"""Controls running jobs from other terminals, through the state directory, the control socket and the nodes."""
