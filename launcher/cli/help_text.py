# SPDX-License-Identifier: Apache-2.0
"""What --help says: the options used most, and where the rest is. It fits a terminal of 80 columns and 24 lines."""

HELP = """\
usage: python paddle.py (-p DIR | -j DIR) [options] [--flag=value ...] [-- ...]
       python paddle.py status|attach|logs|stop|doctor|completion|help ...

Runs a script on all nodes of conf.py.

  -p, --job_dispatch_package=DIR  send DIR to every node and run it there
  -j, --job_workspace=DIR         run DIR, which is on the nodes already
  --dry_run             show every process of the job; connect to nothing
  --conf=FILE           the cluster (default: conf.py beside paddle.py)
  --entry=FILE          what runs: train.py (default), ./run.sh, -mpkg.module
  --mode=MODE           v2 (default), fluid; collective: any script at all
  --nproc_per_node=N    so many trainers on each node (default: 1)
  --env=NAME[=VALUE]    a variable for every process; --env_file=FILE: many
  --max_restarts=N      start a process that failed again, up to N times
  --detach              let the job go on by itself; attach brings it back
  -h, --help            this text; --version: the version

All other arguments reach the trainers as they are, those after a lone -- even
unread; flags of paddle.init become PADDLE_INIT_<NAME> too.

More: paddle.py help command-line (every option, exit codes), help configuration
(conf.py), help any-script (PyTorch, ...), help WORD. Alone, it lists all.
"""
