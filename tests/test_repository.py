# SPDX-License-Identifier: Apache-2.0
"""What must not be in the repository: keys, shells fed with strings, unpickling, accepted host keys."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCANNED = (".py", ".sh", ".toml", ".yml", ".yaml", ".md", ".cfg", "")
BANNED = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/=]{16}"),
    "a command given to a shell": re.compile(r"shell\s*=\s*True"),
    "host keys accepted unseen": re.compile(r"AutoAddPolicy|StrictHostKeyChecking[= ]+(no|off)"),
    "unpickling": re.compile(r"(?<![\w.])(pickle|cPickle)\.loads?\(|recv_pyobj"),
    "evaluation of text": re.compile(r"(?<![\w.])(?<!def )eval\("),  # a method of that name may be defined
    "a socket on every interface": re.compile(r"""["']0\.0\.0\.0["']"""),
}
# The user's own data: the sample trainer reads the dictionary that prepare.py wrote beside it; a test of files that
# scripts unpickle reads them as scripts do.
ALLOWED = {
    ("tests/runtime/paddle_node/contract/test_classes.py", "unpickling"),  # of records that it pickled itself
    ("tests/runtime/pserver/test_torch_gaps.py", "unpickling"),
    ("tests/runtime/pserver/reader/test_http_server.py", "a socket on every interface"),  # it is refused
    ("tests/runtime/v2/test_v2_image.py", "unpickling"),
    ("tests/runtime/trainer/test_provider.py", "unpickling"),  # of arguments that it pickled itself
    ("workspace_template/train.py", "unpickling"),
    ("workspace_template/prepare.py", "unpickling"),
}
PACKED = {".whl", ".egg", ".zip", ".tar", ".gz", ".bz2", ".xz", ".so", ".o", ".pyc"}


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listing.decode().split("\0") if name]


@pytest.mark.parametrize("what", BANNED)
def test_no_tracked_file_contains(what: str) -> None:
    here = Path(__file__).resolve()
    found = []
    for path in tracked_files():
        if path == here or path.suffix not in SCANNED or not path.is_file():
            continue
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group(0)}"
            for hit in BANNED[what].finditer(text)
            if (name, what) not in ALLOWED
        ]
    assert found == []


def test_no_tracked_file_is_a_package_or_an_archive() -> None:
    assert [path.name for path in tracked_files() if path.suffix in PACKED and path.is_file()] == []


def test_every_test_that_shows_a_promise_is_there() -> None:
    text = (ROOT / "docs/security-tests.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.]+\.py)::(\w+)`", text)
    assert len(named) > 20
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (path := ROOT / "tests" / file).is_file()
        or not re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_every_module_of_which_a_duration_is_known_is_there() -> None:
    pytest.importorskip("xdist")
    from tests.beside import TESTS
    from tests.shares import SECONDS

    assert [share for share in SECONDS if share not in TESTS and not (ROOT / share).is_file()] == []
