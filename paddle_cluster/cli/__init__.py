# SPDX-License-Identifier: Apache-2.0
"""The command-line interface: commands, options, help and exit codes. The top layer.

`main` is the only place that turns an error into an exit code; `commands/` has one module per command of paddle.py.
"""
