# SPDX-License-Identifier: Apache-2.0
"""How several workers share the tests: a module at a time, those that take longest first, so that all end together.

All scenarios of a kind, which run beside each other (`tests.beside`), are one share.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.beside import TESTS

A_TEST_S = 0.1
# What takes a worker more than 25 s, to about 10 s, on two cores; nothing but the order depends on it. Others are
# taken to last as long as their number of tests says.
SECONDS = {
    "test_on_hosts_of_its_own": 700,
    "tests/benchmarks/test_benchmark_runs.py": 300,
    "tests/book/test_fluid_chapters.py": 270,
    "tests/book/test_fluid_collection.py": 190,
    "tests/book/test_v2_chapters.py": 150,
    "tests/book/test_v2_programs.py": 150,
    "tests/cluster/jobs/test_doctor.py": 70,
    "tests/cluster/jobs/test_job_bootstrap.py": 50,
    "tests/benchmarks/test_collection.py": 60,
    "tests/docs/test_messages.py": 50,
    "tests/examples/test_ctr_dataset_example.py": 40,
    "tests/examples/test_fluid_examples.py": 30,
    "tests/launcher/control/test_detached.py": 90,
    "tests/launcher/engines/test_kubernetes_engine.py": 130,
    "tests/launcher/engines/test_kubernetes_objects.py": 50,
    "tests/launcher/ssh/test_bad_starts.py": 40,
    "tests/launcher/ssh/test_config_agreement.py": 30,
    "tests/launcher/ssh/test_login.py": 60,
    "tests/launcher/ssh/test_reconnect.py": 80,
    "tests/packaging/test_wheel.py": 90,
    "tests/runtime/collective/test_collective_failures.py": 50,
    "tests/runtime/fluid/parallel/test_fluid_local_steps.py": 30,
    "tests/runtime/fluid/remote/test_fluid_processes.py": 60,
    "tests/runtime/ops/test_gradients.py": 100,
    "tests/runtime/paddle_node/agent/processes/test_reports.py": 70,
    "tests/runtime/paddle_node/agent/processes/test_stop.py": 50,
    "tests/runtime/pserver/client/test_wrong_addresses.py": 70,
    "tests/runtime/pserver/durable/test_checkpoint_growing.py": 90,
    "tests/runtime/pserver/durable/test_checkpoint_moment.py": 40,
    "tests/runtime/pserver/server/test_pushes_of_the_slow.py": 50,
    "tests/runtime/pserver/sparse/test_sparse_tables_agree.py": 60,
    "tests/runtime/pserver/transports/test_push_matrix.py": 340,
    "tests/runtime/pserver/transports/test_streams.py": 50,
    "tests/runtime/v2/training/test_v2_within_node.py": 40,
    "tests/test_main_job.py": 60,
    "tests/workspace_template/test_train.py": 30,
}


class Shares(LoadFileScheduling):  # type: ignore[misc]  # xdist brings no types
    """Of several workers one gets a whole module, and one all scenarios of a kind."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        name = test.partition("[")[0]
        return name if name in TESTS else module

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._seconds), last=False)
        super()._assign_work_unit(node)

    def _seconds(self, share: str) -> float:
        return SECONDS.get(share, A_TEST_S * len(self.workqueue[share]))

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a share that has ended: xdist counts the tests of all shares of a worker after each test."""
        share = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][share].values()):
            del self.assigned_work[node][share]
