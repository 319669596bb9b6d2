# SPDX-License-Identifier: Apache-2.0
"""The objects of a job in Kubernetes: what the API's own schemas say to them, what is in them, and --dry_run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import kubernetes_objects
from paddle_cluster.engines.callback_agents import AGENT_CODE, INVITATION, CallbackAgent
from paddle_cluster.errors import ConfError, UsageError
from paddle_cluster.plan import plan
from tests.cluster.api_server import ApiServer
from tests.cluster.kubelets import LocalKubelet

ROOT = Path(__file__).resolve().parents[3]
CALLBACK_AGENT = CallbackAgent(
    ("/bin/sh", "-c", 'exec "$1" -c "$0"', "load", "python3"),
    {INVITATION: "secret-a", AGENT_CODE: "secret-b"},
)
NOW = datetime(2026, 1, 2, 3, 4, 5)


def resolved(folder: Path, *args: str, **conf: Any) -> Settings:
    """Settings of a job in pods."""
    (folder / "ws").mkdir(exist_ok=True)
    names = {"K8S_IMAGE": "image:1", **conf}
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items() if value is not None)
    (folder / "conf.py").write_text(text)
    given = arguments.parse(["-p", f"{folder}/ws", f"--conf={folder}/conf.py", "--engine=kubernetes", *args])
    return resolve(given, {"HOME": str(folder)})


def objects(folder: Path, *args: str, **conf: Any) -> kubernetes_objects.Objects:
    """What is made of a job."""
    return kubernetes_objects.render(
        plan.build(resolved(folder, *args, **conf), plan.new_job_id(NOW, b"abc")), CALLBACK_AGENT
    )


def generated(number: int) -> dict[str, Any]:
    """Some configuration or other."""
    draw = random.Random(number)

    def some(value: Any) -> Any:
        return value if draw.random() < 0.5 else None

    pod = {
        "metadata": {"annotations": {"who": "me"}, "labels": {"team": "a"}},
        "spec": {
            "containers": [
                {
                    "name": "node",
                    "imagePullPolicy": "Always",
                    "env": [{"name": "A", "value": "$(B)"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "imagePullSecrets": [{"name": "registry"}],
            "priorityClassName": "low",
        },
    }
    drawn = {
        "K8S_NODES": draw.choice([1, 2, 17, 1000]),
        "K8S_IMAGE": draw.choice(["image", "registry.example.org:5000/team/paddle@sha256:" + "0" * 64]),
        "K8S_NAMESPACE": some("team-a"),
        "K8S_REQUESTS": some({"cpu": draw.choice([1, "500m"]), "memory": "8Gi"}),
        "K8S_LIMITS": some({"nvidia.com/gpu": 1, "memory": "16Gi", "ephemeral-storage": "1e9"}),
        "K8S_NODE_SELECTOR": some({"pool": "gpu", "kubernetes.io/arch": "amd64"}),
        "K8S_TOLERATIONS": some(
            [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
        ),
        "K8S_QUEUE": some("queue-a"),
        "K8S_SERVICE_ACCOUNT": some("trainer"),
        "K8S_USER": some(draw.choice([0, 1234])),
        "K8S_PVC": some({"datasets": "/data", "results": "/results"}),
        "K8S_SHM_SIZE": some("64Gi"),
        "K8S_IMAGE_PULL_SECRETS": some(["registry", "other"]),
        "K8S_PRIORITY_CLASS": some("high"),
        "K8S_DEADLINE_S": some(draw.choice([0, 3600])),
        "ROOT_DIR": some("/scratch/jobs"),
        "K8S_POD": some(pod),
    }
    return {name: value for name, value in drawn.items() if value is not None}


@pytest.mark.parametrize("number", range(50))
def test_the_schemas_of_kubernetes_take_what_is_made(tmp_path: Path, number: int) -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="needs the schemas of PyPI's kubernetes-validate"
    )
    job, *others = objects(tmp_path, *["--min_trainers=1"][: number % 2], **generated(number))
    owner = {"metadata": {"name": job["metadata"]["name"], "uid": "0-1"}}
    for version in ("1.29", "1.33", schemas.latest_version()):
        for made in (job, *(kubernetes_objects.owned(each, owner) for each in others)):
            schemas.validate(made, version, strict=True)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl (Debian: kubernetes-client)")
def test_kubectl_takes_what_is_shown(tmp_path: Path) -> None:
    shown = ""
    for number in range(50):
        job_id = plan.new_job_id(NOW, bytes([number] * 3))
        configured = generated(number) | {"K8S_NAMESPACE": None}
        planned = plan.build(resolved(tmp_path, **configured), job_id)
        shown += kubernetes_objects.shown(planned)
    server = ApiServer(LocalKubelet())
    server.lets_all_in = True
    try:
        server.kubeconfig(tmp_path / "kubeconfig")
        # validation would be the server's: this one has no schemas, which the test above has
        done = subprocess.run(
            ["kubectl", "apply", "--dry-run=client", "--validate=false", "-f", "-"],
            input=shown,
            env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(" created (dry run)\n") == 150
        assert server.names("jobs") == []
    finally:
        server.close()


@pytest.mark.parametrize("number", range(50))
def test_what_is_shown_is_yaml_of_what_is_made(tmp_path: Path, number: int) -> None:
    yaml = pytest.importorskip("yaml")
    planned = plan.build(resolved(tmp_path, **generated(number)), plan.new_job_id(NOW, b"abc"))
    job, secret, service = yaml.safe_load_all(kubernetes_objects.shown(planned))
    made = kubernetes_objects.render(planned, CALLBACK_AGENT)
    made.job["spec"]["template"]["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", "***"]
    assert (job, service) == (made.job, made.service)
    assert secret == {**made.secret, "stringData": {INVITATION: "***", AGENT_CODE: "***"}}


def test_what_is_secret_is_in_the_secret_alone(tmp_path: Path) -> None:
    made = objects(tmp_path, "--nnodes=3")
    assert made.secret["stringData"] == dict(CALLBACK_AGENT.env)
    assert not any(
        word in str(each) for each in (made.job, made.service) for word in CALLBACK_AGENT.env.values()
    )


def test_a_job_is_indexed_ends_with_its_first_failure_and_goes_by_itself(tmp_path: Path) -> None:
    spec = objects(tmp_path, "--nnodes=3").job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["suspend"]) == (0, True)
    assert spec["ttlSecondsAfterFinished"] > 0
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False


def test_pods_run_as_restricted_namespaces_ask_for(tmp_path: Path) -> None:
    pod = objects(tmp_path, "--nnodes=1").job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {"name": "HOME", "value": kubernetes_objects.HOME} in container["env"]
    assert container["workingDir"] == kubernetes_objects.HOME
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def mounted(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Mount path -> its volume, without the name."""
    (container,) = pod["containers"]
    volumes = {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in pod["volumes"]}
    return {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}


def test_what_a_job_writes_is_a_volume_and_the_image_is_not_written_to(tmp_path: Path) -> None:
    shm = {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    made = objects(tmp_path, "--nnodes=1").job["spec"]["template"]["spec"]
    assert mounted(made) == {
        "/dev/shm": shm,
        kubernetes_objects.HOME: {"emptyDir": {}},
        "/tmp": {"emptyDir": {}},
    }
    claims = {"K8S_PVC": {"datasets": "/data"}, "ROOT_DIR": "/scratch/jobs"}
    made = objects(tmp_path, "--nnodes=1", **claims).job["spec"]["template"]["spec"]
    assert mounted(made)["/data"] == {"persistentVolumeClaim": {"claimName": "datasets"}}
    assert mounted(made)["/scratch/jobs"] == {"emptyDir": {}}
    made = objects(tmp_path, "--nnodes=1", **(claims | {"ROOT_DIR": "/data/jobs"})).job["spec"]["template"][
        "spec"
    ]
    assert "/data/jobs" not in mounted(made)
    image = objects(tmp_path, "--nnodes=1", K8S_USER=0).job["spec"]["template"]["spec"]
    assert mounted(image) == {"/dev/shm": shm}
    assert "readOnlyRootFilesystem" not in image["containers"][0]["securityContext"]


def in_node(**fields: Any) -> dict[str, Any]:
    """K8S_POD with more of the node's container, and a volume `data`."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    return {"spec": {"containers": [{"name": "node", **fields}], "volumes": [claim]}}


@pytest.mark.parametrize(
    ("at", "root", "others"),
    [
        ("/data", "/data/paddle", {kubernetes_objects.HOME, "/tmp", "/dev/shm"}),
        ("/data/", "/data/../data/paddle", {kubernetes_objects.HOME, "/tmp", "/dev/shm"}),
        ("/tmp", "/scratch", {kubernetes_objects.HOME, "/scratch", "/dev/shm"}),
        ("/tmp/", "~/jobs", {kubernetes_objects.HOME, "/dev/shm"}),
        ("/scratch", "/scratch", {kubernetes_objects.HOME, "/tmp", "/dev/shm"}),
        ("/dev/shm", "/tmp/jobs", {kubernetes_objects.HOME, "/tmp"}),
        ("/home", "/home/jobs", {"/tmp", "/dev/shm"}),
        ("/scratch/data", "/scratch", {kubernetes_objects.HOME, "/tmp", "/dev/shm", "/scratch"}),
    ],
)
def test_no_volume_of_ours_covers_one_of_the_user(
    tmp_path: Path, at: str, root: str, others: set[str]
) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    given = in_node(volumeMounts=[{"name": "data", "mountPath": at}])
    for conf in {"K8S_POD": given}, {"K8S_PVC": {"data": at.rstrip("/")}}:
        pod = objects(tmp_path, "--nnodes=1", ROOT_DIR=root, **conf).job["spec"]["template"]["spec"]
        found = mounted(pod)
        assert len(found) == len(pod["containers"][0]["volumeMounts"]) == len(pod["volumes"])
        assert (found.pop(at, None) or found.pop(at.rstrip("/"))) == claim
        assert set(found) == others


def test_two_mounts_of_a_volume_stay_two_and_one_of_the_pod_precedes_a_claim(tmp_path: Path) -> None:
    mounts = [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b/", "subPath": "b"}]
    conf = {"K8S_POD": in_node(volumeMounts=mounts), "K8S_PVC": {"other": "/b", "more": "/c"}}
    pod = objects(tmp_path, "--nnodes=1", **conf).job["spec"]["template"]["spec"]
    found = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert {path: name for path, name in found.items() if path < "/d"} == {
        "/a": "data",
        "/b/": "data",
        "/c": "claim-1",
    }
    assert len(found) == len(pod["containers"][0]["volumeMounts"])


def test_the_home_that_the_pod_is_given_is_what_a_job_can_write_to(tmp_path: Path) -> None:
    given = in_node(env=[{"name": "HOME", "value": "/people/me"}])
    pod = objects(tmp_path, "--nnodes=1", K8S_POD=given).job["spec"]["template"]["spec"]
    assert mounted(pod)["/people/me"] == {"emptyDir": {}}
    assert pod["containers"][0]["workingDir"] == "/people/me"
    assert kubernetes_objects.HOME not in mounted(pod)


@pytest.mark.parametrize("workspace", ["/opt/ws", "~/ws", "ws"])
def test_a_workspace_in_the_image_is_refused_unless_pods_can_write_to_it(
    tmp_path: Path, workspace: str
) -> None:
    def made(**conf: Any) -> dict[str, Any]:
        (tmp_path / "conf.py").write_text(
            "".join(f"{name} = {value!r}\n" for name, value in {"K8S_IMAGE": "image:1", **conf}.items())
        )
        given = [f"--job_workspace={workspace}", f"--conf={tmp_path}/conf.py", "--engine=kubernetes"]
        settings = resolve(arguments.parse([*given, "--nnodes=2"]), {"HOME": str(tmp_path)})
        job = kubernetes_objects.render(
            plan.build(settings, plan.new_job_id(NOW, b"abc")), CALLBACK_AGENT
        ).job
        spec: dict[str, Any] = job["spec"]["template"]["spec"]
        return mounted(spec)

    conf = {"ROOT_DIR": "/opt/jobs"}
    at = {"/opt/ws": "/opt/ws", "~/ws": f"{kubernetes_objects.HOME}/ws", "ws": "/opt/jobs/ws"}[workspace]
    with pytest.raises(UsageError, match=rf"K8S_USER = 0 .* K8S_PVC = {{'CLAIM': '{at}'}}"):
        made(**conf)
    assert made(K8S_USER=0, **conf).keys() == {"/dev/shm"}
    assert at in made(K8S_PVC={"code": at}, **conf)
    given = in_node(volumeMounts=[{"name": "data", "mountPath": str(Path(at).parent)}])
    assert str(Path(at).parent) in made(K8S_POD=given, **conf)
    writable = made(K8S_POD=in_node(securityContext={"readOnlyRootFilesystem": False}), **conf)
    assert not any(Path(at).is_relative_to(path) for path in writable)


def test_nothing_is_requested_of_what_has_a_limit_or_a_request_in_the_pod(tmp_path: Path) -> None:
    def resources(**conf: Any) -> Any:
        job = objects(tmp_path, "--nnodes=1", **conf).job
        return job["spec"]["template"]["spec"]["containers"][0]["resources"]

    given = in_node(resources={"limits": {"cpu": "500m"}, "requests": {"memory": "2Gi"}})
    assert resources(K8S_POD=given) == {"limits": {"cpu": "500m"}, "requests": {"memory": "2Gi"}}
    assert resources() == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert resources(K8S_REQUESTS={"cpu": 0, "memory": 0}) == {"requests": {"cpu": "0", "memory": "0"}}


def test_a_job_has_requests_a_deadline_standard_labels_and_spreads(tmp_path: Path) -> None:
    made = objects(tmp_path, "--nnodes=2", "--name=resnet", K8S_LIMITS={"memory": "500Mi"})
    spec, name = made.job["spec"], made.job["metadata"]["name"]
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "500Mi"}}
    assert spec["activeDeadlineSeconds"] == 30 * 86400
    assert "activeDeadlineSeconds" not in objects(tmp_path, "--nnodes=2", K8S_DEADLINE_S=0).job["spec"]
    assert made.job["metadata"]["annotations"] == {"paddle-cluster/name": "resnet"}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == name
    assert labels["app.kubernetes.io/managed-by"] == "paddle-cluster"
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_what_conf_says_of_the_pod_is_merged_last_and_by_names(tmp_path: Path) -> None:
    given = {"spec": {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}}
    (container,) = objects(tmp_path, "--nnodes=1", K8S_POD=given).job["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == "image:1"
    assert {INVITATION, AGENT_CODE, "A"} <= {each["name"] for each in container["env"]}
    replaced = {"spec": {"containers": [{"name": "node", "image": "other"}], "restartPolicy": "OnFailure"}}
    pod = objects(tmp_path, "--nnodes=1", K8S_POD=replaced).job["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["restartPolicy"]) == ("other", "OnFailure")


@pytest.mark.parametrize(
    ("args", "conf", "says"),
    [
        ([], {}, "give --nnodes=N"),
        (["--nnodes=2"], {"HOSTS": ["a"]}, "conf.py:2: HOSTS names machines"),
        (["--nnodes=2"], {"K8S_IMAGE": None}, "K8S_IMAGE is missing"),
        (["--nnodes=2"], {"K8S_LIMITS": {"cpu": "many"}}, "conf.py:2: K8S_LIMITS: expected an amount"),
        (["--nnodes=2"], {"K8S_POD": {"containers": []}}, "K8S_POD: expected a dictionary with 'spec'"),
        *(
            (
                ["--nnodes=2"],
                {"K8S_PVC": {"a": path}},
                "K8S_PVC: expected an absolute path in the pod without",
            )
            for path in ("data", "/", "/data/", "//data", "/data/../x", "/./data", "/a//b", "/a:b")
        ),
        (
            ["--nnodes=2"],
            {"K8S_PVC": {"a": "/x", "b": "/x"}},
            "expected a different mount path for each volume claim",
        ),
        (["--nnodes=2"], {"K8S_QUEU": "a"}, "did you mean K8S_QUEUE?"),
        (["--nnodes=2"], {"PSERVERS": ["pod-2"]}, "'pod-2' is not in the nodes of --engine=kubernetes"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_made(
    tmp_path: Path, args: list[str], conf: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfError, match=says.replace("?", r"\?")):
        resolved(tmp_path, *args, **conf)


def test_roles_name_pods(tmp_path: Path) -> None:
    cluster = resolved(tmp_path, K8S_NODES=3, PSERVERS=["pod-0"], TRAINERS=[1, 2]).cluster
    assert [host.name for host in cluster.hosts] == ["pod-0", "pod-1", "pod-2"]
    assert (cluster.pservers, cluster.trainers) == ((0,), (1, 2))


def test_a_dry_run_is_yaml_as_a_whole_and_holds_no_secret(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text("pass\n")
    (tmp_path / "conf.py").write_text("K8S_IMAGE = 'image:1'\nK8S_KUBECONFIG = ''\n")
    argv = [sys.executable, str(ROOT / "paddle.py"), "-p", "ws", "--conf=conf.py"]
    done = subprocess.run(
        [*argv, "--engine=kubernetes", "--nnodes=2", "--dry_run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout) if each]
    assert kinds == ["Job", "Secret", "Service"]
    assert "# job JOB" in done.stdout


def test_a_workspace_that_pods_cannot_write_to_is_refused_before_any_connection(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes", reason="needs the Kubernetes client")
    (tmp_path / "conf.py").write_text("K8S_IMAGE = 'image:1'\n")
    argv = [sys.executable, str(ROOT / "paddle.py"), "-j", "/ws", "--conf=conf.py", "--engine=kubernetes"]
    done = subprocess.run(
        [*argv, "--nnodes=2"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "--job_workspace=/ws: pods run as user 1000 and cannot write to /ws" in done.stderr
