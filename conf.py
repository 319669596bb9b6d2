# SPDX-License-Identifier: Apache-2.0
"""The cluster that paddle.py runs jobs on; docs/configuration.md lists every name."""

# The machines, one entry each; the position in this list is the node's id. `local` is an embedded node: a
# directory and an agent on this machine, without sshd. Three of them make a cluster to try things on.
# Real machines instead:
#
#   HOSTS = [
#       "root@10.1.9.7",              # [user@]host
#       "root@10.1.18.7:2222",        # [user@]host:port
#       "root@[fd00::7]:22",          # [user@][IPv6 address]:port
#       "gpu-box",                    # a Host of ~/.ssh/config
#   ]
HOSTS = ["local", "local", "local"]

# Parent of the job directories on every node; ~ is the home directory there.
ROOT_DIR = "~/.paddle-cluster"

# Network interface for the traffic between pservers and trainers, such as "eth0"; "": chosen by route.
PADDLE_NIC = ""

# First port of a pserver; if it is in use, the pserver takes the next free one and informs the trainers.
PADDLE_PORT = 7164

# Ports for dense parameters on every pserver; more ports carry more parallel traffic.
PADDLE_PORTS_NUM = 1

# Ports for sparse parameters on every pserver, after the dense ones.
PADDLE_PORTS_NUM_FOR_SPARSE = 1

# Whether trainers compute on a GPU.
PADDLE_USE_GPU = "False"

# Prepended to the LD_LIBRARY_PATH of the nodes, such as "/usr/local/cuda/lib64:/usr/lib64".
LD_LIBRARY_PATH = ""

# Which nodes run a pserver and which a trainer: entries of HOSTS or their indices. Default: all run both.
# PSERVERS = [0]
# TRAINERS = [1, 2]

# Python 3.11 or newer with numpy and pyzmq on the nodes; "" is python3 there, and this Python on local nodes.
PYTHON = ""

# Settings of single hosts: {"gpu-box": {"python": "/opt/py311/bin/python", "root_dir": "/scratch",
# "env": {"DATA": "/mnt/data"}, "key": "~/.ssh/other"}}
HOST_SETTINGS = {}
