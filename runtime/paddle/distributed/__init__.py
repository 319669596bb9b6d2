# SPDX-License-Identifier: Apache-2.0
"""Launchers that start several processes of one script on this machine: `launch`, `launch_ps` and `launch_v2`.

Nothing here needs numpy, zmq or the rest of the runtime. While `paddle.py` starts a job on many machines, these
launchers start the processes of this machine only; another tool runs them on every machine.
"""
