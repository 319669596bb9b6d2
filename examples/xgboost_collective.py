# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Plain XGBoost over several processes: each has a share of the rows, and together they train one model.

XGBoost 2.1 and newer take the location of the other processes as arguments, older versions from environment variables
of the same names: DMLC_TRACKER_URI, DMLC_TRACKER_PORT and DMLC_TASK_ID, which paddle.py sets.

    python paddle.py -p examples --entry=xgboost_collective.py --mode=collective --nproc_per_node=2
"""

import argparse
import hashlib
import os

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

WAIT_S = 60


def two_spirals(samples, seed):
    """Return points (samples, 2) float32 and the spiral of each (samples,) float32."""
    random = np.random.default_rng(seed)
    turn = np.sqrt(random.random(samples)) * 3 * np.pi
    arm = random.integers(2, size=samples)
    angle = turn + arm * np.pi
    points = np.stack((turn * np.cos(angle), turn * np.sin(angle)), axis=1) / 10
    return (points + 0.02 * random.normal(size=points.shape)).astype(np.float32), arm.astype(np.float32)


def train(rank, world, args):
    """Return the model that all processes have trained together."""
    points, arms = two_spirals(args.samples, seed=1)
    own = xgboost.DMatrix(points[rank::world], arms[rank::world])
    settings = {"objective": "binary:logistic", "max_depth": 6, "eta": 0.3, "nthread": args.threads}
    return xgboost.train(settings, own, num_boost_round=args.rounds)


def main():
    """Train, test, and print which model each process has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--samples", type=int, default=6144)
    parser.add_argument("--threads", type=int, default=int(os.environ["OMP_NUM_THREADS"]), help="per process")
    args = parser.parse_args()

    where = {
        name: os.environ[name.upper()] for name in ("dmlc_tracker_uri", "dmlc_tracker_port", "dmlc_task_id")
    }
    tracker = None
    if int(os.environ["RANK"]) == 0:  # DMLC_TRACKER_URI is the address of this process
        tracker = RabitTracker(
            n_workers=int(os.environ["WORLD_SIZE"]),
            host_ip=where["dmlc_tracker_uri"],
            port=int(where["dmlc_tracker_port"]),
            sortby="task",  # ranks as assigned by paddle.py
            timeout=WAIT_S,
        )
        tracker.start()
    where["dmlc_tracker_port"] = int(where["dmlc_tracker_port"])
    with collective.CommunicatorContext(**where, dmlc_timeout=WAIT_S, dmlc_retry=WAIT_S):
        rank, world = collective.get_rank(), collective.get_world_size()
        print(f"process {rank} of {world}, RANK {os.environ['RANK']}")
        model = train(rank, world, args)
        points, arms = two_spirals(2000, seed=3)
        right = ((model.predict(xgboost.DMatrix(points)) > 0.5) == arms).mean()
        digest = hashlib.sha256(model.save_raw("json")).hexdigest()[:16]
        print(f"process {rank}: test accuracy {right:.3f}, model {digest}")
        if rank == 0:
            os.makedirs("output", exist_ok=True)
            model.save_model("output/model.json")
    if tracker is not None:
        tracker.wait_for(WAIT_S)


if __name__ == "__main__":
    main()
