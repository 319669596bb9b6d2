# SPDX-License-Identifier: Apache-2.0
"""The cache of data set files: fetched once, whole or not at all; files put there by hand are used."""

from __future__ import annotations

import hashlib
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from paddle.dataset import DatasetError, common

BODY = b"a data set\n" * 10_000
MD5 = hashlib.md5(BODY).hexdigest()


def files_in(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def test_a_file_is_fetched_into_the_module_folder_under_its_own_name(site: Any, empty_home: Path) -> None:
    site.gives(BODY)
    path = common.download(f"{site.url}/data/set.tgz", "mod", MD5)
    assert path == str(empty_home / "mod" / "set.tgz")
    assert Path(path).read_bytes() == BODY
    assert files_in(empty_home) == ["mod/set.tgz"]


def test_a_file_in_the_cache_is_not_fetched_again(site: Any, empty_home: Path) -> None:
    site.gives(BODY)
    for _ in range(3):
        common.download(f"{site.url}/set.tgz", "mod", MD5)
    assert site.requests == ["/set.tgz"]


def test_a_file_can_be_kept_under_another_name(site: Any, empty_home: Path) -> None:
    site.gives(BODY)
    assert Path(common.download(f"{site.url}/x?id=1", "mod", MD5, save_name="set.tgz")).name == "set.tgz"


def test_the_user_sees_what_is_fetched_from_where(
    site: Any, empty_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.gives(BODY)
    path = common.download(f"{site.url}/set.tgz", "mod", MD5)
    shown = capsys.readouterr().err
    assert f"Cache file {path} not found, downloading {site.url}/set.tgz" in shown
    assert f"{len(BODY)} bytes received" in shown


def test_a_download_is_told_before_it_begins_with_how_to_do_without(
    site: Any, empty_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.replies = [(404, b"", 0)] * 3
    with pytest.raises(DatasetError):
        common.download(f"{site.url}/set.tgz", "mod", MD5)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(
        f"downloading {site.url}/set.tgz (to use a directory other than {empty_home}, set PADDLE_DATA_HOME)"
    )


def test_damaged_and_truncated_replies_are_tried_again_and_never_kept(site: Any, empty_home: Path) -> None:
    site.replies = [(200, b"damaged", 7), (200, BODY[:100], len(BODY)), (200, BODY, len(BODY))]
    assert Path(common.download(f"{site.url}/set.tgz", "mod", MD5)).read_bytes() == BODY
    assert len(site.requests) == 3
    assert files_in(empty_home) == ["mod/set.tgz"]


def test_after_three_damaged_replies_nothing_is_left_and_the_message_has_both_sums(
    site: Any, empty_home: Path
) -> None:
    site.gives(b"damaged")
    with pytest.raises(DatasetError) as failure:
        common.download(f"{site.url}/set.tgz", "mod", MD5)
    assert hashlib.md5(b"damaged").hexdigest() in str(failure.value)
    assert MD5 in str(failure.value)
    assert len(site.requests) == 3
    assert files_in(empty_home) == []


def test_a_missing_file_says_what_to_put_where(site: Any, empty_home: Path) -> None:
    site.replies = [(404, b"", 0)]
    with pytest.raises(DatasetError) as failure:
        common.download(f"{site.url}/set.tgz", "mod", MD5)
    text = str(failure.value)
    wanted = empty_home / "mod" / "set.tgz"
    assert f"{site.url}/set.tgz" in text
    assert "404" in text
    assert f"save it as {wanted} (md5 {MD5})" in text
    assert failure.value.path == wanted


def test_a_server_that_is_not_there_says_what_to_put_where(empty_home: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(DatasetError, match=r"ConnectionRefused|refused.*save it as .*set\.tgz"):
            common.download(f"http://127.0.0.1:{port}/set.tgz", "mod", MD5)


def test_only_web_addresses_are_fetched(tmp_path: Path, empty_home: Path) -> None:
    (tmp_path / "set.tgz").write_bytes(BODY)
    with pytest.raises(DatasetError, match="expected an http or https url"):
        common.download(f"file://{tmp_path}/set.tgz", "mod", MD5)


def test_a_file_put_there_by_hand_is_used_after_one_warning_with_both_sums(
    empty_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = empty_home / "mod" / "set.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"repacked")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert common.download("http://nowhere.invalid/set.tgz", "mod", MD5) == str(path)
    (record,) = caplog.records
    assert hashlib.md5(b"repacked").hexdigest() in record.getMessage()
    assert MD5 in record.getMessage()


def test_a_right_file_put_there_by_hand_gets_no_warning(
    empty_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = empty_home / "mod" / "right.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    assert common.download("http://nowhere.invalid/right.tgz", "mod", MD5) == str(path)
    assert caplog.records == []


def test_the_cache_is_in_the_home_folder_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PADDLE_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path / ".cache" / "paddle" / "dataset") == common.DATA_HOME
    monkeypatch.setenv("PADDLE_DATA_HOME", "/data/sets")
    assert common.DATA_HOME == "/data/sets"


def test_md5file_is_the_md5_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(BODY)
    assert common.md5file(tmp_path / "x") == MD5
