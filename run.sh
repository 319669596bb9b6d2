#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains word2vec on the nodes of conf.py: sh run.sh [any option of paddle.py or flag of the trainer]
#
# On a fresh machine this also makes .venv from the lock file and the sample data. To run your own job, copy
# workspace_template, edit conf.py, and give your directory in PATH_TO_LOCAL_WORKSPACE, or the name of a job that
# is already on the nodes in PATH_TO_REMOTE_EXISTED_WORKSPACE.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
workspace=${PATH_TO_LOCAL_WORKSPACE:-$here/workspace_template}

sh "$here/tools/venv.sh" requirements.lock
python="$here/.venv/bin/python"

if [ -n "${PATH_TO_REMOTE_EXISTED_WORKSPACE:-}" ]; then
    exec "$python" "$here/paddle.py" "--job_workspace=$PATH_TO_REMOTE_EXISTED_WORKSPACE" "$@"
fi
if [ -z "${PATH_TO_LOCAL_WORKSPACE:-}" ]; then
    "$python" "$workspace/prepare.py" -- "$@"
fi
exec "$python" "$here/paddle.py" "--job_dispatch_package=$workspace" "$@"
