# SPDX-License-Identifier: Apache-2.0
"""Starts several processes of one script on this machine: `python -m paddle.distributed.launch`, `launch_ps`.

Nothing here needs numpy, zmq or the rest of the runtime. While `paddle.py` starts a job on many machines, these
launchers start the processes of this machine only; another tool runs them on every machine.
"""
