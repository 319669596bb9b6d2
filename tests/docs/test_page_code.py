# SPDX-License-Identifier: Apache-2.0
"""The Python of README and pages runs: each block is taken from its page, and run as a job beside what it presupposes.

A block is what stands behind four blanks and parses as Python. A line `...` in it is what the reader writes there.
Commands are test_commands' to check.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from paddle_cluster.config.conf_file import read_conf
from tests import nursery
from tests.local_nodes import warm_nodes, warm_state
from tests.other_python import python_with

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("tutorial-*.md"))),
    *("docs/pserver-client.md", "docs/sparse-tables.md", "docs/any-script.md"),
    *("docs/serving.md", "docs/inside-tables.md", "docs/inside-pserver.md"),
)
TURNS = 60  # of what two processes do at the same time
_BLOCK = re.compile(r"^    .*\n(?:\n*    .*\n)*", re.MULTILINE)
_COMMAND = re.compile(r"^    (?:sh|cp|kill|python|python3|paddle|paddle-cluster) \S.*$", re.MULTILINE)
_INDEX = re.compile(r"^( *)<(\d)>$", re.MULTILINE)


class Program(NamedTuple):
    """A job made of blocks of a page.

    Attributes:
        source: the whole; `<0>` stands for the page's first block, indented as it is.
        written: what the reader writes for each line `...`, in order.
        needs: a module without which it is skipped.
        options: of the job.
        instead: text of the page -> what it is for this job.
    """

    page: str
    source: str
    written: tuple[str, ...] = ()
    needs: str = "numpy"
    options: tuple[str, ...] = ()
    instead: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{Path(self.page).stem} {' '.join(index for _, index in _INDEX.findall(self.source))}"


_BEGIN = """import os
import numpy as np
from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec, TensorOptions
rng = np.random.default_rng(1)
ids = np.array([[1, 2 ** 60], [1, -3]])
w = np.zeros((4, 3), np.float32)
"""
_TORCH = (
    "import os, torch, numpy as np\nfrom paddle.pserver import Client, OptimizerSpec\n"
    "torch.set_num_threads(1)\n"
)
_TWO = ("--mode=collective", "--nproc_per_node=2")
PROGRAMS = (
    Program(
        "docs/tutorial-pytorch.md",
        _TORCH
        + "network = lambda: torch.nn.Linear(2, 2)\n<0>\n"
        + f"for step in range({TURNS}):\n    loss, batch = torch.ones(1), [step]\n    <2>\n"
        + "    dist.barrier()\n    <3>\n"
        + "dist.barrier()\nassert set(torch.load(saved)) == set(model.state_dict())\ndist.destroy_process_group()\n",
        ("", "model(torch.ones(1, 2)).sum().backward()"),
        "torch",
        _TWO,
    ),
    Program(
        "docs/tutorial-embedding.md",
        _TORCH + "ids = torch.from_numpy(np.random.default_rng(1).integers(0, 10 ** 11, (256, 2)))\n"
        "loader, loss = [(ids, torch.ones(256))] * 2, torch.nn.BCEWithLogitsLoss()\n<0>\n"
        "assert (model(ids) > 0).all(), model(ids)\n",
        ("def forward(self, ids):\n    return self.ads(ids).sum(1)\n",),
        needs="torch",
    ),
    Program(
        "docs/tutorial-v2.md",
        "import os\n<0>\n",
        (
            "<1>\n"
            "def all_samples():\n    return [([float(i), 1.0], [2.0 * i]) for i in range(64)]\n"
            "x = paddle.layer.data('x', paddle.data_type.dense_vector(2))\n"
            "y = paddle.layer.data('y', paddle.data_type.dense_vector(1))\n"
            "cost = paddle.layer.square_error_cost(input=paddle.layer.fc(x, size=1), label=y)\n"
            "parameters = paddle.parameters.create(cost)\n"
            "optimizer = paddle.optimizer.Momentum(learning_rate=1e-6)\n",
        ),
    ),
    Program(
        "docs/pserver-client.md",
        "batches = [1.0, 2.0]\ndef gradient(w, batch):\n    return 0 * w + np.float32(batch)\n"
        "<0>\nassert w.max() < 0, w\n".replace("batches =", "import numpy as np\nbatches =", 1),
    ),
    Program(
        "docs/pserver-client.md",
        _TORCH + "model = torch.nn.Linear(2, 2)\noptimizer = OptimizerSpec('sgd', learning_rate=0.1)\n"
        "with Client() as client:\n    <1>\n    assert parameters['bias'].abs().max() > 0.01\n",
        ("loss = model(torch.ones(3, 2)).sum()",),
        "torch",
    ),
    Program(
        "docs/inside-pserver.md",
        _BEGIN + "w = np.zeros((256, 10), np.float32)\n"
        "batches = [(np.ones((8, 256), np.float32), np.ones((8, 10), np.float32))] * 3\n"
        "with Client() as client:\n    client.create({'w': w}, OptimizerSpec('sgd', learning_rate=1.0))\n"
        "    <1>\n    assert np.allclose(seen, -24.0), seen\n",
    ),
    Program(
        "docs/pserver-client.md",
        _BEGIN + "of_vectors, of_w = np.ones((2, 2, 64), np.float32), np.ones_like(w)\n"
        "with Client() as client:\n    <2>\n    assert vectors.shape == (2, 2, 64)\n"
        "    <3>\n    assert vectors.max() < 0\n",
    ),
    Program(
        "docs/serving.md",
        _BEGIN + "from paddle.pserver import Reader\nkey = os.environ['PADDLE_JOB_KEY']\n"
        "rows = np.ones((4, 64), np.float32)\nids = ids.reshape(-1)\n"
        "with Client() as client:\n"
        "    client.create({'emb': GrowingTable(64), 'w': w}, OptimizerSpec('sgd', learning_rate=1.0))\n"
        "    client.push_pull({'emb': (ids, rows), 'w': np.ones_like(w)}, {})\n"
        "    <0>\n    assert version == 1 and out['w'].max() < 0 and vectors.max() < 0, (version, out)\n",
        instead=(
            '["10.0.0.1:7164", "10.0.0.2:7164"]',
            "os.environ['PADDLE_PSERVERS_IP_PORT_LIST'].split(','), "
            "[x for x in os.environ.get('PADDLE_PSERVERS_SPARSE_IP_PORT_LIST', '').split(',') if x]",
        ),
    ),
    Program(
        "docs/sparse-tables.md",
        _BEGIN
        + "ids = ids.reshape(-1)\ngradients = np.ones((4, 64), np.float32)\n<0>\nassert rows.shape == (4, 64)\n",
    ),
    Program(
        "docs/inside-tables.md",
        _BEGIN + "from paddle.optim.spec import ParameterSpec, RowGradient\n"
        "from paddle.pserver.sparse.hash_table import HashTable\nfrom paddle.pserver.sparse.spec import TableSpec\n"
        "spec, optimizer = TableSpec(ParameterSpec('user', (1, 4), sparse=True), Initial()), OptimizerSpec('sgd')\n"
        "table = HashTable(spec, optimizer)\n"
        "table.update([RowGradient(np.array([5, 9]), np.ones((2, 4), np.float32))], 0.1)\n"
        "<0>\nassert np.array_equal(np.sort(np.concatenate([block.ids for block in blocks])), [5, 9])\n",
    ),
    Program("docs/any-script.md", "<0>\nassert jax.process_count() == 2\n", needs="jax", options=_TWO),
    Program(
        "docs/inside-pserver.md",
        _BEGIN + "from paddle.optim.spec import ParameterSpec\nkey = os.environ['PADDLE_JOB_KEY']\n"
        "value, gradient = np.zeros(4, np.float32), np.ones(4, np.float32)\n"
        "parameters, values = [ParameterSpec('fc.w', (4,))], {'fc.w': value}\n"
        "optimizer = OptimizerSpec('sgd', learning_rate=1.0)\n<0>\nassert np.allclose(value, -1.0), value\n",
        options=("--ports_num_for_sparse=0",),
        instead=('["10.0.0.1:7164"]', "os.environ['PADDLE_PSERVERS_IP_PORT_LIST'].split(',')"),
    ),
)
CONFS = (("docs/tutorial-pytorch.md", 1), ("docs/tutorial-v2.md", 2))


@cache
def blocks(page: str) -> tuple[str, ...]:
    """The blocks of a page that are Python, in its order."""
    text = _COMMAND.sub("text", (ROOT / page).read_text(encoding="utf-8"))
    found = (changed(textwrap.dedent(block)) for block in _BLOCK.findall(text))
    return tuple(block for block in found if is_python(block))


def changed(block: str) -> str:
    """The program that a diff leads to, and any other block as it is."""
    lines = block.splitlines(keepends=True)
    is_diff = any(line.startswith("+") for line in lines)
    return "".join(line[1:] for line in lines if not line.startswith("-")) if is_diff else block


def is_python(block: str) -> bool:
    """Whether it parses, and is more than names and numbers."""
    try:
        tree = ast.parse(block)
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.Assign | ast.Call | ast.Import | ast.ImportFrom) for node in ast.walk(tree)
    )


def whole(program: Program) -> str:
    """The source with the page's blocks in their places, and what the reader writes in those of `...`."""

    def put_in(source: str) -> str:
        return _INDEX.sub(
            lambda found: textwrap.indent(blocks(program.page)[int(found[2])].rstrip("\n"), found[1]), source
        )

    source = put_in(program.source)
    for text in program.written:
        gap = re.search(r"^( *)\.\.\.$", source, re.MULTILINE)
        assert gap is not None, f"{program.page} has fewer lines `...`"
        source = source[: gap.start()] + textwrap.indent(put_in(text), gap[1]) + source[gap.end() :]
    return source.replace(*program.instead) if program.instead[0] else source


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_blocks_of_a_page_run_as_a_job(program: Program, tmp_path: Path) -> None:
    python = python_with(program.needs)
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "train.py").write_text(whole(program))
    (tmp_path / "conf.py").write_text(
        f"HOSTS = ['local']\nROOT_DIR = {str(warm_nodes(tmp_path / 'nodes', 1))!r}\nPYTHON = {python!r}\n"
    )
    argv = ["-p", "ws", "--conf=conf.py", *program.options]
    env = {**os.environ, "PADDLE_STATE_DIR": str(warm_state(tmp_path / "state")), "OMP_NUM_THREADS": "1"}
    done = nursery.run("launcher", argv, env, tmp_path, 300)
    assert done.returncode == 0, f"{whole(program)}\n{done.stdout[-6000:]}\n{done.stderr}"


@pytest.mark.parametrize(("page", "index"), CONFS)
def test_the_configuration_of_a_page_is_one(page: str, index: int, tmp_path: Path) -> None:
    conf = tmp_path / "conf.py"
    conf.write_text(blocks(page)[index])
    assert "HOSTS" in read_conf(conf).values


def test_no_block_of_these_pages_is_left_out() -> None:
    run = {
        (one.page, int(index))
        for one in PROGRAMS
        for _, index in _INDEX.findall("\n".join([one.source, *one.written]))
    }
    there = {(page, index) for page in PAGES for index in range(len(blocks(page)))}
    assert there - run - set(CONFS) == set()
    assert run | set(CONFS) <= there
