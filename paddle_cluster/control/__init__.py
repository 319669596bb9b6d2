# SPDX-License-Identifier: Apache-2.0
"""Control of running jobs from other terminals: state directory, control socket and nodes; above `screen`."""
