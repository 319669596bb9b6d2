# SPDX-License-Identifier: Apache-2.0
"""What --help says. It fits a terminal of 80 columns and 24 lines."""

HELP = """\
usage: python paddle.py (-p DIR | -j DIR) [options] [--flag=value ...] [-- ...]

Runs a training job on the nodes of conf.py.

  -p, --job_dispatch_package=DIR  send DIR to every node and run it there
  -j, --job_workspace=DIR         run DIR, which is on the nodes already
  --conf=FILE             the cluster (default: conf.py beside paddle.py)
  --dry_run               print every process of the job; connect to nothing
  --entry=FILE            script that trainers run (default: train.py)
  --mode=MODE             v2 (default), fluid or collective
  --shard_dirs=DIR[,DIR]  of these, send *-00007 to one node only: 7 mod nodes
  --wire=WIRE             curve (encrypted, default) or plain
  --accept_new_host_keys  trust the ssh keys of machines never seen before
  --allow_mismatch        go on when nodes differ in Python or numpy version
  -h, --help              this text
  --version               the version

All other arguments reach the trainers as they are; flags of paddle.init such as
--trainer_count=2 also as PADDLE_INIT_TRAINER_COUNT. What follows a lone -- is
never read here. --port, --ports_num, --ports_num_for_sparse, --nics, --use_gpu
override conf.py. Exit codes: docs/command-line.md
"""
