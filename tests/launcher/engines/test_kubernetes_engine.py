# SPDX-License-Identifier: Apache-2.0
"""--engine=kubernetes against a test API server: callback agents connect, and errors name their cause."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.resolve import resolve
from paddle_cluster.engines.engine import Engine, Target, entry
from paddle_cluster.errors import ConnectError
from paddle_cluster.plan import plan
from tests.cluster.api_server import INDEX, ApiServer
from tests.cluster.api_wire import CUT, HOLD, forbidden, status
from tests.cluster.deadline import wait_for
from tests.cluster.kubelets import LocalKubelet
from tests.launcher.engines.pod_statuses import PODS

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes") is None,  # its import takes 0.5 s, in each worker
    reason="needs the Kubernetes client (pip install 'paddle-cluster[kubernetes]')",
)
yaml = pytest.importorskip("yaml")


def granted() -> set[tuple[str, str]]:
    """What the shipped role grants."""
    documents = yaml.safe_load_all((ROOT / "docker_cluster" / "kubernetes" / "rbac.yaml").read_text())
    (role,) = [each for each in documents if each["kind"] == "Role"]
    return {
        (verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }


def target(node_id: int) -> Target:
    return Target(node_id, f"pod-{node_id}", parse_host(f"pod-{node_id}"), "python3")


class Bench:
    """An API server that grants what the shipped role does, and engines that ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ApiServer(LocalKubelet())
        self.server.rules = granted()
        self.engines: list[Engine] = []

    def engine(
        self, namespace: str = "team", nodes: int = 2, options: Sequence[str] = (), **conf: Any
    ) -> Engine:
        """An engine for so many pods."""
        names = {
            "K8S_IMAGE": "image:1",
            "K8S_USER": 0,  # a local process has no home of its own
            "K8S_KUBECONFIG": str(self.server.kubeconfig(self.folder / "kubeconfig", namespace)),
            "LEASE_S": 2,
            "CONNECT_TIMEOUT_S": 2,
            **conf,
        }
        file = self.folder / "conf.py"
        file.write_text("".join(f"{name} = {value!r}\n" for name, value in names.items()))
        (self.folder / "ws").mkdir(exist_ok=True)
        given = arguments.parse(
            [
                "-p",
                f"{self.folder}/ws",
                f"--conf={file}",
                "--engine=kubernetes",
                f"--nnodes={nodes}",
                *options,
            ]
        )
        resolved = resolve(given, {"HOME": str(self.folder)})
        planned = plan.build(resolved, plan.new_job_id(datetime.now(), os.urandom(3)))
        made = entry(resolved).of(planned, is_job=False)
        made.check()
        self.engines.append(made)
        return made

    def why(self, engine: Engine, node_id: int = 0) -> str:
        """Why a node cannot be connected to."""
        with pytest.raises(ConnectError) as caught:
            engine.connect(target(node_id))
        return str(caught.value)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        self.server.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def connect_all(engine: Engine, nodes: int = 2) -> list[Any]:
    """A stream to each node."""
    with ThreadPoolExecutor(nodes) as pool:
        return list(pool.map(lambda node_id: engine.connect(target(node_id)), range(nodes)))


def end_all(streams: list[Any]) -> None:
    for stream in streams:
        stream.end()


def test_porters_call_and_nothing_is_left_of_them(bench: Bench) -> None:
    engine = bench.engine()
    streams = connect_all(engine)
    assert len(bench.server.names("pods")) == 2
    end_all(streams)
    assert engine.close() == ""
    for resource in ("jobs", "secrets", "services", "pods"):
        assert bench.server.names(resource) == []


def test_the_shipped_role_grants_what_is_asked_and_no_more(bench: Bench) -> None:
    engine = bench.engine()
    end_all(connect_all(engine))
    bench.server.status = lambda index: {"phase": "Pending"}
    waiting = bench.engine(K8S_START_TIMEOUT_S=20)
    with in_background(lambda: bench.why(waiting)):
        bench.server.wait_for("a look at events", lambda: ("list", "events") in bench.server.asked)
        engine.close()
        waiting.close()
    assert {*bench.server.asked} == granted()


@contextlib.contextmanager
def in_background(work: Callable[[], object]) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(work)
        yield
        begun.result(60)


@pytest.mark.parametrize("missing", sorted(granted() - {("delete", "jobs")}))
def test_what_is_forbidden_is_told_with_verb_resource_and_the_role(
    bench: Bench, missing: tuple[str, str]
) -> None:
    verb, resource = missing
    bench.server.rules = granted() - {missing}
    bench.server.status = lambda index: {"phase": "Pending"}
    said = bench.why(bench.engine())
    assert f"Kubernetes did not {verb} {resource} in namespace team: 403" in said
    assert f'cannot {verb} resource "{resource}"' in said
    assert "docker_cluster/kubernetes/rbac.yaml" in said


@pytest.mark.parametrize(("state", "says"), PODS)
def test_a_pod_that_will_not_run_ends_the_start_with_its_cause(
    bench: Bench, state: dict[str, Any], says: str
) -> None:
    bench.server.status = lambda index: state if index == 1 else None
    engine = bench.engine()
    said = bench.why(engine, 1)
    assert "pod-1" in said
    assert says in said
    assert engine.close() == ""
    assert bench.server.names("jobs") == []


def test_the_message_of_a_failed_pull_is_told_with_the_back_off(bench: Bench) -> None:
    waiting = {"reason": "ErrImagePull", "message": "manifest for image:1 not found"}
    bench.server.status = lambda index: {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": waiting}}],
    }
    engine = bench.engine(nodes=1)

    def back_off() -> None:
        bench.server.wait_for("a watch", lambda: ("watch", "pods") in bench.server.asked)
        later = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        bench.server.set_status(0, {"containerStatuses": [{"state": {"waiting": later}}]})

    with in_background(back_off):
        said = bench.why(engine)
    assert "ImagePullBackOff" in said
    assert "manifest for image:1 not found" in said


def test_what_a_pod_waits_for_is_told_when_the_time_is_over(bench: Bench) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    bench.server.status = lambda index: {
        "phase": "Pending",
        "conditions": [{**condition, "message": message}],
    }
    said = bench.why(bench.engine(K8S_START_TIMEOUT_S=3))
    assert "has not connected within 3 s; Kubernetes reports: pod-" in said
    assert message in said


def test_a_queue_that_does_not_admit_the_job_is_told(bench: Bench) -> None:
    engine = bench.engine(K8S_QUEUE="gpus", K8S_START_TIMEOUT_S=3)
    assert "no queue has admitted it yet" in bench.why(engine)
    assert ("patch", "jobs") not in bench.server.asked


def test_a_queue_begins_the_job_itself(bench: Bench) -> None:
    engine = bench.engine(K8S_QUEUE="gpus")

    def admit() -> None:
        bench.server.wait_for("the Service", lambda: bench.server.names("services"))
        bench.server.admit()

    with in_background(admit):
        end_all(connect_all(engine))
    assert bench.server.bodies["jobs"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


QUOTA = 'pods "job-0" is forbidden: exceeded quota: compute, requested: cpu=4, used: cpu=8, limited: cpu=10'


def test_a_quota_that_takes_no_pod_is_told(bench: Bench) -> None:
    bench.server.refused_pods = QUOTA
    assert QUOTA in bench.why(bench.engine())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status(403, "Forbidden", 'jobs.batch "x" is forbidden: exceeded quota: objects'), "exceeded quota"),
        (status(409, "AlreadyExists", 'jobs.batch "x" already exists'), "already exists"),
        (
            status(422, "Invalid", "spec.template.spec.x: Invalid value"),
            "422 spec.template.spec.x: Invalid value",
        ),
    ],
)
def test_a_job_that_cannot_be_made_is_told_and_nothing_else_is_made(
    bench: Bench, answer: Any, says: str
) -> None:
    bench.server.instead["create", "jobs"].append(answer)
    engine = bench.engine()
    said = bench.why(engine)
    assert says in said
    assert "rbac" not in said
    assert engine.close() == ""
    assert {*bench.server.asked} == {("create", "jobs")}


def test_a_namespace_that_is_not_there_is_told(bench: Bench) -> None:
    said = bench.why(bench.engine(namespace="nowhere"))
    assert 'namespaces "nowhere" not found' in said
    assert "K8S_NAMESPACE" in said


def test_a_namespace_of_conf_goes_before_that_of_the_context(bench: Bench) -> None:
    end_all(connect_all(bench.engine(namespace="nowhere", K8S_NAMESPACE="team")))


BUSY = status(429, "TooManyRequests", "slow down", {"Retry-After": "1"})
DOWN = status(503, "ServiceUnavailable", "etcd is away")
NONSENSE: Any = (200, {}, ["no", "object"])


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("create", "jobs"), ("create", "secrets"), ("patch", "jobs"), ("list", "pods"), ("delete", "jobs")],
)
@pytest.mark.parametrize("trouble", [BUSY, DOWN, CUT, NONSENSE], ids=["busy", "down", "cut", "nonsense"])
def test_requests_that_may_go_well_are_made_again(
    bench: Bench, verb: str, resource: str, trouble: Any
) -> None:
    bench.server.instead[verb, resource].append(trouble)
    engine = bench.engine()
    end_all(connect_all(engine))
    if verb in ("list", "patch"):  # beside which the callback agents run
        bench.server.wait_for("a second one", lambda: bench.server.asked.count((verb, resource)) > 1)
    assert engine.close() == ""
    assert bench.server.asked.count((verb, resource)) > 1
    assert bench.server.names("jobs") == bench.server.names("secrets") == []


def test_a_watch_that_is_lost_or_too_old_is_made_again_and_the_job_goes_on(bench: Bench) -> None:
    bench.server.instead["watch", "pods"] += [CUT, status(410, "Expired", "too old"), BUSY, DOWN]
    engine = bench.engine()
    streams = connect_all(engine)
    bench.server.wait_for("five watches", lambda: bench.server.asked.count(("watch", "pods")) > 4, 60)
    bench.server.forget_history()
    lists = bench.server.asked.count(("list", "pods"))
    bench.server.wait_for("a list", lambda: bench.server.asked.count(("list", "pods")) > lists)
    assert all(stream.may_live_on for stream in streams)
    end_all(streams)
    assert engine.close() == ""


@pytest.mark.parametrize("how", ["deleted", "OOMKilled"])
def test_a_pod_that_is_lost_ends_what_runs_with_its_cause(bench: Bench, how: str) -> None:
    engine = bench.engine()
    streams = connect_all(engine)
    if how == "deleted":
        bench.server.delete_pod(1)
    else:
        terminated = {"reason": how, "exitCode": 137}
        bench.server.set_status(
            1, {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}
        )
    wait_for("an end of streams", lambda: not any(stream.may_live_on for stream in streams), 30)
    assert re.search(rf"pod-1 .*{how}", bench.why(engine))
    end_all(streams)


@pytest.mark.parametrize("how", ["deleted", "OOMKilled"])
def test_a_pod_that_is_lost_is_lost_alone_where_the_job_can_go_on(bench: Bench, how: str) -> None:
    engine = bench.engine(nodes=3, options=["--min_trainers=1"])
    first, lost, last = streams = connect_all(engine, 3)
    if how == "deleted":
        bench.server.delete_pod(1)
    else:
        terminated = {"reason": how, "exitCode": 137}
        bench.server.set_status(
            1, {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}
        )
    wait_for("the end of its stream", lambda: not lost.may_live_on, 30)
    assert re.search(rf"pod-1 .*{how}", bench.why(engine, 1))
    assert first.may_live_on
    assert last.may_live_on
    end_all(streams)
    assert engine.close() == ""


def test_a_job_that_somebody_deletes_is_told(bench: Bench) -> None:
    engine = bench.engine()
    streams = connect_all(engine)
    (name,) = bench.server.names("jobs")
    bench.server.handle("delete", "jobs", name, {}, {})
    wait_for("an end of streams", lambda: not any(stream.may_live_on for stream in streams), 30)
    assert re.search("pod-. was deleted|the Job was deleted", bench.why(engine))
    end_all(streams)


def test_a_job_that_may_not_be_deleted_is_told_at_the_end(bench: Bench) -> None:
    engine = bench.engine()
    end_all(connect_all(engine))
    bench.server.instead["delete", "jobs"].append(status(403, "Forbidden", forbidden("delete", "jobs")))
    left = engine.close()
    assert "did not delete jobs" in left
    assert "pods will end on their own" in left


def test_an_end_while_the_job_is_being_made_leaves_nothing(bench: Bench) -> None:
    bench.server.instead["create", "secrets"] += [BUSY] * 20
    engine = bench.engine()
    with in_background(lambda: bench.why(engine)):
        bench.server.wait_for("a Secret", lambda: ("create", "secrets") in bench.server.asked)
        assert engine.close() == ""
    assert bench.server.names("jobs") == []


def test_two_hundred_pods_that_fail_at_once_are_one_cause(bench: Bench) -> None:
    state = {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}
    bench.server.status = lambda index: state
    said = bench.why(bench.engine(nodes=200), 150)
    assert len(said) < 300
    assert INDEX not in said


def test_no_thread_outlives_an_engine_that_was_never_used(bench: Bench) -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile
    assert bench.engine().close() == ""
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_an_answer_that_does_not_come_is_asked_for_again(bench: Bench) -> None:
    bench.server.instead["create", "services"].append(HOLD)
    engine = bench.engine()
    end_all(connect_all(engine))
    assert bench.server.asked.count(("create", "services")) == 2
    assert engine.close() == ""
