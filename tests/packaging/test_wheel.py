# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed into an environment of its own, from a directory where no repository is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.cli.commands.init import TEMPLATE_FILES

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 110
LINES = 640  # of each piece of the data: ten batches

# What runs in the new environment sees nothing of this one but the libraries that the wheel needs.
ENVIRON = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PADDLE_CLUSTER"))
}


def run(*argv: str | Path, cwd: Path, code: int = 0) -> str:
    """Run a command to its end; what it wrote."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def build(kind: str, source: Path, to: Path) -> Path:
    """Build a distribution by what is installed, without a network."""
    run(sys.executable, "-P", "-m", "hatchling", "build", "--target", kind, "--directory", to, cwd=source)
    (made,) = to.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def bin_dir(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel in it."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={place / 'bin' / 'python'}"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), cwd=place)
    (libraries,) = place.glob("lib/python3*/site-packages")
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


@pytest.fixture
def paddle_cluster(bin_dir: Path) -> Path:
    return bin_dir / "paddle-cluster"


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_an_installed_launcher_trains_what_init_wrote(paddle_cluster: Path, tmp_path: Path) -> None:
    told = run(paddle_cluster, "init", "demo", cwd=tmp_path)
    assert told.splitlines()[-1] == "next: paddle-cluster run -p demo/ws"
    with (tmp_path / "demo" / "conf.py").open("a") as conf:
        conf.write(f"ROOT_DIR = {str(tmp_path / 'nodes')!r}\n")
    for piece in (tmp_path / "demo" / "ws").glob("t*.txt-*"):
        piece.write_text("".join(piece.read_text().splitlines(keepends=True)[:LINES]))
    output = run(paddle_cluster, "run", "-p", "demo/ws", "--num_passes=1", cwd=tmp_path)
    assert output.splitlines()[0] == "3 nodes from demo/conf.py"
    assert len(re.findall(r"^\[trainer \d local-\d\] Pass 0, Train cost [\d.]+", output, re.MULTILINE)) == 3
    assert (tmp_path / "demo/ws/output/pass-00000/params.tar.gz").is_file()
    others = "in use by pid"  # what another job's process is called is nobody's slip
    assert not [line for line in output.splitlines() if str(ROOT) in line and others not in line]


def test_prepare_asks_the_installed_launcher_how_many_trainers_there_are(
    bin_dir: Path, paddle_cluster: Path, tmp_path: Path
) -> None:
    run(paddle_cluster, "init", ".", cwd=tmp_path)
    (tmp_path / "conf.py").write_text("HOSTS = ['local'] * 5\n")
    assert "pieces for 5 trainers, in ws" in run(bin_dir / "python", "ws/prepare.py", cwd=tmp_path)


def test_scripts_import_paddle_and_see_no_launcher(bin_dir: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, paddle, paddle.v2, paddle.fluid; print(paddle.__file__);"
        "print([name for name in ('launcher', 'agent', 'runtime', 'docs') if u.find_spec(name)])"
    )
    where, others = run(bin_dir / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(bin_dir.parent)
    assert others == "[]"
    assert run(bin_dir / "paddle", "version", cwd=tmp_path).startswith("PaddlePaddle ")


def test_conf_py_beside_the_workspace_counts_before_the_one_here(
    paddle_cluster: Path, tmp_path: Path
) -> None:
    (tmp_path / "demo/ws").mkdir(parents=True)
    (tmp_path / "demo/ws/train.py").write_text("pass\n")
    job = [str(paddle_cluster), "-p", "demo/ws", "--dry_run"]
    missing = run(*job, cwd=tmp_path, code=2)
    assert missing.startswith("paddle-cluster: conf.py: no such file")
    assert "`paddle-cluster init DIR`" in missing
    (tmp_path / "demo/conf.py").write_text("HOSTS = ['beside']\n")
    assert "1 node from demo/conf.py" in run(*job, cwd=tmp_path)
    from_within = run(paddle_cluster, "-p", ".", "--dry_run", cwd=tmp_path / "demo/ws")
    assert f"1 node from {tmp_path / 'demo/conf.py'}" in from_within
    (tmp_path / "conf.py").write_text("HOSTS = ['here', 'there']\n")
    assert "1 node from demo/conf.py" in run(*job, cwd=tmp_path)
    assert "2 nodes from conf.py" in run(paddle_cluster, "-j", "ws", "--dry_run", cwd=tmp_path)


def test_what_is_told_names_the_command_that_was_called(paddle_cluster: Path, tmp_path: Path) -> None:
    assert run(paddle_cluster, "--version", cwd=tmp_path).startswith("paddle-cluster ")
    for words in (["--help"], *([command, "--help"] for command in COMMANDS)):
        told = run(paddle_cluster, *words, cwd=tmp_path)
        assert "paddle-cluster" in told
        assert "paddle.py" not in told
        assert max(map(len, told.splitlines())) <= 80
    page = run(paddle_cluster, "help", "control", cwd=tmp_path)
    assert "paddle-cluster -p ws --detach" in page
    assert "python paddle.py" not in page


def test_the_shell_is_told_to_ask_the_installed_launcher(paddle_cluster: Path, tmp_path: Path) -> None:
    code = f"""
    source <({paddle_cluster} completion bash)
    COMP_WORDS=(paddle-cluster sta); COMP_CWORD=1
    _paddle_py paddle-cluster
    echo "${{COMPREPLY[@]}}"
    complete -p paddle-cluster
    """
    told = run("bash", "--norc", "-c", code, cwd=tmp_path).splitlines()
    assert told == ["status", "complete -F _paddle_py paddle-cluster"]


def test_the_wheel_holds_three_packages_and_nothing_that_a_user_made(wheel: Path) -> None:
    found = names(wheel)
    assert {name.partition("/")[0] for name in found} == {
        "paddle",
        "paddle_node",
        "paddle_job.py",
        "py_paddle.py",
        "paddle_cluster",
    }
    runtime = ROOT / "runtime"
    imported = {path for path in runtime.rglob("*") if path.suffix in (".py", ".c", ".h", ".so")}
    assert {str(path.relative_to(runtime)) for path in imported} == {
        name for name in found if name.startswith(("paddle/", "paddle_node/", "paddle_job", "py_paddle"))
    }
    page = ROOT / "paddle_cluster" / "dashboard" / "page"
    assert {f"paddle_cluster/dashboard/page/{file.name}" for file in page.iterdir()} <= found
    assert {name for name in found if "workspace_template" in name} == {
        f"paddle_cluster/workspace_template/{name}" for name in TEMPLATE_FILES
    }


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.rmtree(tmp_path / "sdist")
    (source,) = tmp_path.iterdir()
    assert names(build("wheel", source, tmp_path / "wheel")) == names(wheel)


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler")
def test_a_wheel_made_of_sources_alone_brings_compiled_kernels(tmp_path: Path) -> None:
    """As `pip install .` in a fresh checkout makes it."""
    source = tmp_path / "checkout"
    kept = shutil.ignore_patterns(".*", "built", "__pycache__", "tests", "log", "output")
    shutil.copytree(ROOT, source, ignore=kept)
    assert any(name.endswith(".so") for name in names(build("wheel", source, tmp_path / "wheel")))
