# SPDX-License-Identifier: Apache-2.0
"""The cluster that the launcher runs jobs on. docs/configuration.md lists every name."""

# The machines. The position of a host in this list is its node id. `local` is an embedded node: a directory
# and an agent on this machine, without sshd. Three of them are enough to try things out. With real machines:
#
#   HOSTS = [
#       "root@10.1.9.7",              # [user@]host
#       "root@10.1.18.7:2222",        # [user@]host:port
#       "root@[fd00::7]:22",          # [user@][IPv6 address]:port
#       "gpu-box",                    # a Host of ~/.ssh/config
#   ]
HOSTS = ["local", "local", "local"]

# The parent of the job directories on every node; ~ is the home directory on that node.
ROOT_DIR = "~/.paddle-cluster"

# The network interface for traffic between nodes, such as "eth0". "" selects a network that all nodes share.
PADDLE_NIC = ""

# The first port of a pserver. If it is in use, the pserver takes the next free one, and trainers use that.
PADDLE_PORT = 7164

# The number of ports for dense parameters on each pserver. More ports carry more traffic in parallel.
PADDLE_PORTS_NUM = 1

# The number of ports for sparse parameters on each pserver, after the dense ones.
PADDLE_PORTS_NUM_FOR_SPARSE = 1

# Whether trainers compute on a GPU.
PADDLE_USE_GPU = "False"

# Directories to put before the nodes' own LD_LIBRARY_PATH, such as "/usr/local/cuda/lib64:/usr/lib64".
LD_LIBRARY_PATH = ""

# The nodes that run a pserver, and those that run a trainer: entries of HOSTS or their indices. By default,
# all nodes run both.
# PSERVERS = [0]
# TRAINERS = [1, 2]

# The Python of the nodes. "" is python3, and on local nodes the Python that runs the launcher. Programs that use
# `paddle` (v2, Fluid, paddle.pserver, paddle.collective) need 3.11 or newer, with numpy and pyzmq.
PYTHON = ""

# Settings that differ on single hosts: {"gpu-box": {"python": "/opt/py311/bin/python", "root_dir": "/scratch",
# "env": {"DATA": "/mnt/data"}, "key": "~/.ssh/other"}}
HOST_SETTINGS = {}
