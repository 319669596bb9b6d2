# SPDX-License-Identifier: Apache-2.0
"""How several workers share the tests: a module at a time, those that take longest first, so that all end together.

All scenarios of a kind, which run beside each other (`tests.beside`), are one share.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.beside import TESTS

A_TEST_S = 0.05
# What takes more than 15 s, to about 10 s, with one worker; nothing but the order depends on it. Others are taken to
# last as long as their number of tests says.
SECONDS = {
    "test_on_hosts_of_its_own": 900.0,
    "test_beside_each_other": 50.0,
    "test_after_a_while": 20.0,
    "tests/benchmarks/test_benchmark_runs.py": 170.0,
    "tests/benchmarks/test_collection.py": 50.0,
    "tests/book/test_fluid_chapters.py": 160.0,
    "tests/book/test_fluid_collection.py": 80.0,
    "tests/book/test_v2_chapters.py": 70.0,
    "tests/book/test_v2_program_jobs.py": 20.0,
    "tests/book/test_v2_programs.py": 40.0,
    "tests/cluster/jobs/test_doctor.py": 60.0,
    "tests/cluster/jobs/test_job_bootstrap.py": 20.0,
    "tests/cluster/jobs/test_size.py": 20.0,
    "tests/cluster/test_cluster_hosts.py": 20.0,
    "tests/docs/test_page_code.py": 20.0,
    "tests/docs/test_recipes.py": 20.0,
    "tests/docs/test_site.py": 40.0,
    "tests/examples/test_ctr_dataset_example.py": 40.0,
    "tests/examples/test_fluid_examples.py": 20.0,
    "tests/fuzz/test_fuzz.py": 20.0,
    "tests/launcher/control/test_detached.py": 40.0,
    "tests/launcher/engines/test_kubernetes_engine.py": 60.0,
    "tests/launcher/engines/test_kubernetes_objects.py": 20.0,
    "tests/launcher/files/test_dispatch.py": 20.0,
    "tests/launcher/files/test_kept_jobs.py": 40.0,
    "tests/launcher/ssh/test_bad_starts.py": 30.0,
    "tests/launcher/ssh/test_config_agreement.py": 20.0,
    "tests/launcher/ssh/test_host_options.py": 20.0,
    "tests/launcher/ssh/test_login.py": 20.0,
    "tests/launcher/ssh/test_reconnect.py": 60.0,
    "tests/packaging/test_wheel.py": 50.0,
    "tests/runtime/collective/test_collective_failures.py": 40.0,
    "tests/runtime/collective/test_collective_peers.py": 20.0,
    "tests/runtime/fluid/parallel/test_fluid_local_steps.py": 30.0,
    "tests/runtime/fluid/remote/test_fluid_growing_table.py": 20.0,
    "tests/runtime/fluid/remote/test_fluid_processes.py": 50.0,
    "tests/runtime/fluid/remote/test_fluid_server_kills.py": 20.0,
    "tests/runtime/kernels/test_dense.py": 10,
    "tests/runtime/ops/test_gradients.py": 20.0,
    "tests/runtime/paddle_node/agent/files/test_collect.py": 30.0,
    "tests/runtime/paddle_node/agent/link/test_protocol.py": 20.0,
    "tests/runtime/paddle_node/agent/processes/test_logs.py": 20.0,
    "tests/runtime/paddle_node/agent/processes/test_processes.py": 20.0,
    "tests/runtime/paddle_node/agent/processes/test_reports.py": 20.0,
    "tests/runtime/paddle_node/agent/processes/test_stop.py": 50.0,
    "tests/runtime/pserver/client/test_wrong_addresses.py": 30.0,
    "tests/runtime/pserver/durable/test_checkpoint_growing.py": 30.0,
    "tests/runtime/pserver/durable/test_rows_on_a_disk_that_fails.py": 20.0,
    "tests/runtime/pserver/server/test_pushes_of_the_slow.py": 20.0,
    "tests/runtime/pserver/sparse/test_sparse_float16.py": 70.0,
    "tests/runtime/pserver/sparse/test_sparse_tables_agree.py": 60.0,
    "tests/runtime/pserver/transports/test_push_matrix.py": 90.0,
    "tests/runtime/pserver/transports/test_spoilt_streams.py": 20.0,
    "tests/runtime/pserver/transports/test_streams.py": 30.0,
    "tests/test_main_job.py": 40.0,
    "tests/test_silent_losses.py": 20.0,
    "tests/workspace_template/test_train.py": 30.0,
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
