# SPDX-License-Identifier: Apache-2.0
"""What Prometheus and TensorBoard get of a running job."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from paddle_cluster.control.views import NODES, PROCESSES
from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import LIMIT_S, Bench
from tests.ports import free_range

prometheus = pytest.importorskip("prometheus_client.parser")
event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

ROOT = Path(__file__).resolve().parents[3]

TRAIN = """
import json, os, signal, sys

os.environ["DISABLE_PLOT"] = "True"
from paddle.v2.plot import Ploter

descriptor = int(os.environ["PADDLE_REPORT_FD"])
step = {"event": "progress", "pass_id": 1, "batch_id": 4, "step": 9, "cost": 0.5, "samples": 9, "samples_per_s": 64.0}
os.write(descriptor, json.dumps(step).encode() + b"\\n")
curves = Ploter("Train cost", "Test cost")
curves.append("Test cost", 1, 0.75)
curves.append("Train cost", 10, 0.125)
curves.append("Train cost", 11, 0.0625)
curves.plot()
numbers = {"event": "numbers", "values": {"f1": 0.25}}
os.write(descriptor, json.dumps(numbers).encode() + b"\\n")
signal.pause()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    (tmp_path / "ws" / "train.py").write_text(TRAIN)
    yield bench
    bench.close()


def scraped(port: int) -> dict[str, list[Any]]:
    """The samples at /metrics, by name."""
    found: dict[str, list[Any]] = {}
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        for family in prometheus.text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def records(place: Path) -> list[Any]:
    """The events of a directory's only file: each has its length and two checksums around it."""
    (path,) = place.glob("events.out.tfevents.*")
    data, events = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        events.append(event_pb2.Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return events


def test_a_running_job_is_scraped_and_its_curves_are_read_back(bench: Bench) -> None:
    port = free_range(1)
    conf = bench.place / "conf.py"
    conf.write_text(conf.read_text() + f"METRICS_PORT = {port}\nTENSORBOARD = True\n")
    job = bench.detach()
    labels = {"process": "trainer-0", "role": "trainer", "node": "local-0"}

    def seen() -> dict[str, list[Any]] | None:
        found = scraped(port)
        return (
            found
            if {"paddle_trainer_cost", "paddle_trainer_metric", "paddle_process_resident_memory_bytes"}
            <= found.keys()
            else None
        )

    found = wait_for("a trainer that made a step, and was measured", seen, LIMIT_S)
    assert found is not None
    assert found["paddle_trainer_cost"] == [(labels, 0.5)]
    assert found["paddle_trainer_samples_per_second"] == [(labels, 64.0)]
    assert ({**labels, "metric": "f1"}, 0.25) in found["paddle_trainer_metric"]
    assert found["paddle_process_up"] == [(labels, 1.0)]
    assert found["paddle_process_resident_memory_bytes"][0][1] > 1 << 20
    assert found["paddle_node_memory_bytes"][0][0] == {"node": "local-0"}
    assert found["paddle_job_info"] == [({"job_id": job.job_id, "phase": "run"}, 1.0)]
    assert bench.run("stop", job.job_id).returncode == 0
    values = [
        (value.tag, event.step, value.simple_value)
        for event in records(bench.place / "ws" / "log" / "tensorboard" / job.job_id / "trainer-0")
        for value in event.summary.value
    ]
    expected = [("pass", 9, 1.0), ("cost", 9, 0.5), ("samples_per_s", 9, 64.0)]
    assert [one for one in values if one[0] not in ("Test cost", "Train cost", "f1")] == expected
    assert ("Test cost", 1, 0.75) in values
    assert ("f1", 0, 0.25) in values
    assert ("Train cost", 11, 0.0625) in values


def test_the_grafana_board_asks_for_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    asked = set(re.findall(r"paddle_\w+", json.dumps([panel["targets"] for panel in board["panels"]])))
    facts = [fact for fact in (*PROCESSES, *NODES) if fact.metric]
    served = {f"paddle_{fact.metric.removesuffix('_total')}{'_total' * fact.is_counter}" for fact in facts}
    others = {"paddle_job_info", "paddle_job_failures", "paddle_process_up", "paddle_trainer_metric"}
    assert len(asked) > 10
    assert asked <= served | others
