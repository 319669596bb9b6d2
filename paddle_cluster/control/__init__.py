# SPDX-License-Identifier: Apache-2.0
"""Control of running jobs from other terminals: state directory, control socket and visits to nodes; above `screen`."""
