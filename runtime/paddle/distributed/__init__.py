# SPDX-License-Identifier: Apache-2.0
"""Starts several processes of one script on this machine: `python -m paddle.distributed.launch`, `launch_ps`.

Nothing here needs numpy, zmq or the rest of the runtime. `paddle.py` starts jobs on many machines; this starts this
machine's part of a job that somebody else starts everywhere.
"""
