# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files.package import Package, runtime_package, shard, workspace_package

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a script in it."""
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    return folder


def paths(package: Package) -> list[str]:
    return [entry.path for entry in package.entries]


def manifest(package: Package) -> list[list[object]]:
    return [item for part in package.manifest_parts() for item in json.loads(part)]


def test_a_file_is_described_by_mode_size_digest_and_time(root: Path) -> None:
    (root / "train.py").chmod(0o6755)
    changed = (root / "train.py").stat().st_mtime_ns
    digest = hashlib.blake2b(b"print(1)\n", digest_size=32).hexdigest()
    assert manifest(workspace_package(root)) == [["train.py", "f", 0o755, 9, digest, changed]]


def test_directories_travel_even_when_they_are_empty(root: Path) -> None:
    (root / "data" / "empty").mkdir(parents=True)
    assert paths(workspace_package(root)) == ["data", "data/empty", "train.py"]


@pytest.mark.parametrize("name", ["a b", "-rf", "a\nb", "$(x)", "日本", "'", "\\", "*", ".hidden", "x" * 255])
def test_any_name_is_legal(root: Path, name: str) -> None:
    (root / name).write_text("x")
    assert name in paths(workspace_package(root))


def test_a_name_that_is_not_utf8_stays_the_bytes_it_is(root: Path) -> None:
    name = b"caf\xe9"
    Path(os.fsdecode(os.path.join(os.fsencode(root), name))).write_text("x")
    (path, *_), _ = manifest(workspace_package(root))
    assert os.fsencode(str(path)) == name


def test_results_caches_and_version_control_never_travel(root: Path) -> None:
    for name in (
        "log/node_0/train.log",
        "output/pass-00000/w",
        ".git/config",
        "a/__pycache__/x.pyc",
        "a/.git/x",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "a" / "log").mkdir()
    assert paths(workspace_package(root)) == ["a", "a/log", "train.py"]


def test_a_virtual_environment_travels_only_if_paddleignore_names_it(root: Path) -> None:
    for name in (".venv", "tools/env"):
        (root / name / "bin").mkdir(parents=True)
        (root / name / "bin/python").symlink_to("/usr/bin/python3")
        (root / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    package = workspace_package(root)
    assert paths(package) == ["tools", "train.py"]
    assert {one.path for one in package.left_out} == {".venv/", "tools/env/"}
    (root / ".paddleignore").write_text("!.venv/\n")
    assert ".venv/bin/python" in paths(workspace_package(root, keep_links=True))


def test_paddleignore_has_gits_rules(root: Path) -> None:
    for name in (
        "data/raw/a.bin",
        "data/a.txt",
        "data/keep.bin",
        "tmp/x",
        "deep/tmp/x",
        "top.log",
        "deep/top.log",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / ".paddleignore").write_text("# comment\n*.bin\n!keep.bin\ntmp/\n/top.log\n")
    assert [entry.path for entry in workspace_package(root).files] == [
        ".paddleignore",
        "data/a.txt",
        "data/keep.bin",
        "deep/top.log",
        "train.py",
    ]


def test_links_inside_travel_as_links(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data" / "new").symlink_to("../train.py")
    (root / "latest").symlink_to("data/new")
    (root / "same").symlink_to("data")
    assert [entry.target for entry in workspace_package(root).entries if entry.target] == [
        "../train.py",
        "data/new",
        "data",
    ]


def test_all_files_that_cannot_be_sent_are_refused_in_one_error(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "outside").symlink_to("../elsewhere")
    (root / "around").symlink_to("../ws/train.py")
    (root / "dangling").symlink_to("nothing")
    (root / "loop").symlink_to("pool")
    (root / "pool").symlink_to("loop")
    (root / "to_output").symlink_to("output")
    (root / "output").mkdir()
    (root / "paddle.py").write_text("")
    with pytest.raises(WorkspaceError) as caught:
        workspace_package(root)
    lines = sorted(line.strip() for line in str(caught.value).splitlines()[1:])
    assert lines == sorted(
        [
            "pipe is a named pipe",
            "socket is a socket",
            "absolute is a link to '/etc/passwd', an absolute path: copy the data into the workspace; if the nodes "
            "have it at that path, give --keep_links",
            "outside is a link to '../elsewhere', outside the workspace: copy the data into the workspace; if the "
            "nodes have it, link to its absolute path and give --keep_links",
            "around is a link to '../ws/train.py', outside the workspace: copy the data into the workspace; if the "
            "nodes have it, link to its absolute path and give --keep_links",
            "dangling is a link to 'nothing', which does not exist, or is not sent",
            "loop is a link to 'pool', which forms a loop",
            "pool is a link to 'loop', which forms a loop",
            "to_output is a link to 'output', which does not exist, or is not sent",
            "paddle.py hides the paddle package on the nodes; rename it",
        ]
    )


def test_keys_and_passwords_of_a_home_directory_are_refused_unless_they_are_ignored(root: Path) -> None:
    for name in (".ssh", ".aws"):
        (root / name).mkdir()
        (root / name / "config").touch()
    with pytest.raises(WorkspaceError, match=r"\.paddleignore:\n  \.aws can hold .*\n  \.ssh can hold"):
        workspace_package(root)
    (root / ".paddleignore").write_text(".aws/\n.ssh/*\n")
    assert not [entry for entry in workspace_package(root).files if "config" in entry.path]


@pytest.mark.parametrize(
    ("name", "text", "is_refused"),
    [
        ("id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", True),
        ("keys/aws.pem", "-----BEGIN RSA PRIVATE KEY-----\nAAAA", True),
        ("keys/tls.key", "-----BEGIN PRIVATE KEY-----\nAAAA", True),
        ("mine", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", True),
        ("a.ppk", "PuTTY-User-Key-File-3: ssh-ed25519\n", True),
        ("ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA", False),
        ("id_map", "1 2\n", False),
        ("id_rsa.pub", "ssh-rsa AAAA\n", False),
        ("notes.txt", "-----BEGIN PRIVATE KEY-----\n", False),
    ],
)
def test_private_keys_are_refused_unless_the_user_names_them(
    root: Path, name: str, text: str, is_refused: bool
) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    (root / name).chmod(0o600)
    if is_refused:
        with pytest.raises(WorkspaceError, match=f"{name} is a private key .*add the line !{name} there"):
            workspace_package(root)
        (root / ".paddleignore").write_text(f"!{name}\n")
    assert name in {entry.path for entry in workspace_package(root).files}


def test_links_to_absolute_paths_are_sent_where_that_is_asked_for(root: Path) -> None:
    (root / "data").symlink_to("/mnt/nfs/data")
    (root / "part").symlink_to("data/part-0")
    links = {
        entry.path: entry.target for entry in workspace_package(root, keep_links=True).entries if entry.target
    }
    assert links == {"data": "/mnt/nfs/data", "part": "data/part-0"}
    (root / "outside").symlink_to("../elsewhere")
    with pytest.raises(WorkspaceError, match=r"outside is a link to '../elsewhere', outside the workspace: "):
        workspace_package(root, keep_links=True)


def test_a_package_named_paddle_is_refused(root: Path) -> None:
    (root / "paddle").mkdir()
    with pytest.raises(WorkspaceError, match="paddle hides the paddle package"):
        workspace_package(root)


def test_a_link_that_leaves_through_another_link_is_refused(root: Path) -> None:
    """Text alone says that it stays inside: a/b/c/up/../../x is a/b/x; but up leads to the top."""
    (root / "a/b/c").mkdir(parents=True)
    (root / "top").mkdir()
    (root / "a/b/c/up").symlink_to("../../../top")
    (root / "sly").symlink_to("a/b/c/up/../../x")
    with pytest.raises(WorkspaceError, match=r"sly is a link .* outside the workspace"):
        workspace_package(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_a_device_is_refused(root: Path) -> None:
    os.mknod(root / "null", 0o600 | 0o020000, os.makedev(1, 3))
    with pytest.raises(WorkspaceError, match="null is a device"):
        workspace_package(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(root: Path) -> None:
    (root / "secret").write_text("x")
    (root / "secret").chmod(0)
    with pytest.raises(WorkspaceError, match="secret cannot be read"):
        workspace_package(root)


def test_equal_files_have_one_digest(root: Path) -> None:
    (root / "copy.py").write_text("print(1)\n")
    package = workspace_package(root)
    assert len(package.files) == 2
    assert len(package.by_digest) == 1
    assert package.total_bytes == 18


def test_the_digest_of_a_package_covers_names_modes_and_contents(root: Path) -> None:
    digests = {workspace_package(root).digest}
    (root / "train.py").chmod(0o755)
    digests.add(workspace_package(root).digest)
    (root / "train.py").write_text("print(2)\n")
    digests.add(workspace_package(root).digest)
    (root / "train.py").rename(root / "other.py")
    digests.add(workspace_package(root).digest)
    assert len(digests) == 4
    assert workspace_package(root).digest in digests


def test_a_long_manifest_comes_in_parts(root: Path) -> None:
    for folder in range(40):
        (root / f"{folder:0250d}").mkdir()
        for name in range(100):
            (root / f"{folder:0250d}" / f"{name:0200d}").touch()
    parts = list(workspace_package(root).manifest_parts())
    assert len(parts) > 1
    assert max(len(part) for part in parts) < 2 << 20
    assert len([item for part in parts for item in json.loads(part)]) == 40 * 101 + 1


def test_an_empty_package_still_has_a_manifest() -> None:
    assert list(Package(()).manifest_parts()) == [b"[]"]


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_shards_are_dealt_to_the_nodes_and_everything_else_goes_to_all(root: Path, nodes: int) -> None:
    (root / "data").mkdir()
    for index in range(7):
        (root / "data" / f"train-{index:05d}").write_text(str(index))
        (root / "data" / f"test-{index:05d}.txt.gz").write_text(str(index))
    (root / "data" / "dict.txt").write_text("x")
    (root / "other-00001").write_text("x")
    package = workspace_package(root)
    shares = [shard(package, ["data"], {node}, nodes) for node in range(nodes)]
    for node, share in enumerate(shares):
        numbers = sorted(int(path.split("-")[1][:5]) for path in paths(share) if path.startswith("data/t"))
        assert numbers == sorted(2 * [index for index in range(7) if index % nodes == node])
        assert {"data", "data/dict.txt", "other-00001", "train.py"} <= set(paths(share))


def test_without_shard_dirs_every_node_gets_everything(root: Path) -> None:
    (root / "part-00001").write_text("x")
    package = workspace_package(root)
    assert shard(package, [], {0}, 2) is package


def test_the_runtime_is_the_python_files_of_paddle_and_its_kernels() -> None:
    found = paths(runtime_package(RUNTIME))
    assert "paddle/__init__.py" in found
    assert not [path for path in found if path.startswith("agent")]
    files = [entry.path for entry in runtime_package(RUNTIME).files]
    others = [path for path in files if not path.endswith(".py")]
    assert {path.rpartition(".")[2] for path in others} <= {"c", "h", "so"}
    assert {path.partition("/kernels/")[0] for path in others} == {"paddle"}


def test_of_very_many_problems_some_are_named_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"link{number:03d}").symlink_to("/nowhere")
    with pytest.raises(WorkspaceError, match="and 280 more") as refused:
        workspace_package(tmp_path)
    assert "link000" in str(refused.value)
    assert len(str(refused.value).splitlines()) < 30


def test_a_name_cannot_act_on_the_terminal_that_shows_it(root: Path) -> None:
    os.mkfifo(root / "a\nb\x1b[2Jc")
    with pytest.raises(WorkspaceError) as caught:
        workspace_package(root)
    assert str(caught.value).splitlines()[1:] == ["  a\\nbc is a named pipe"]


def test_a_paddleignore_that_is_no_file_is_refused(root: Path) -> None:
    os.mkfifo(root / ".paddleignore")
    with pytest.raises(WorkspaceError, match="paddleignore: must be a file"):
        workspace_package(root)


@pytest.mark.parametrize(
    ("entry", "ignored"), [("train.py", "*.py\n"), ("output/train.py", ""), ("code/train.py", "code/\n")]
)
def test_an_entry_script_that_does_not_travel_is_refused(entry: str, ignored: str, tmp_path: Path) -> None:
    script = tmp_path / "ws" / entry
    script.parent.mkdir(parents=True)
    script.write_text("pass\n")
    (tmp_path / "ws" / ".paddleignore").write_text(ignored)
    (tmp_path / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'node')!r}\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "paddle.py"), "--conf=conf.py", "-p", "ws", f"--entry={entry}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{entry} is not sent to the nodes" in done.stderr
    assert not (tmp_path / "node").exists()
