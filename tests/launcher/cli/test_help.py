# SPDX-License-Identifier: Apache-2.0
"""`paddle.py help`: the pages of docs/, and single rows of their tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddle_cluster.cli import main
from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.cli.commands.completion import offers
from paddle_cluster.cli.commands.help import run
from paddle_cluster.config.options import CONF_NAMES, OPTIONS
from paddle_cluster.errors import ExitCode, UsageError

DOCS = Path(__file__).resolve().parents[3] / "docs"
TOPICS = sorted(
    {path.stem for path in DOCS.glob("*.md")} - {"index"}
)  # which leads to the others, on the site


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(argv) is ExitCode.DONE
    return capsys.readouterr().out


def test_help_lists_every_page_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    for word in (*TOPICS, *COMMANDS):
        assert re.search(rf"^  {word}  +\S", text, re.MULTILINE), word


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    text = (DOCS / f"{topic}.md").read_text(encoding="utf-8")
    assert shown(capsys, topic).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("option", [option.name for option in OPTIONS])
def test_an_option_can_be_asked_for_with_and_without_dashes(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    text = shown(capsys, f"--{option}")
    assert re.match(rf"--{option}\b", text)
    assert "(more: paddle.py help command-line)" in text


@pytest.mark.parametrize("name", CONF_NAMES)
def test_a_name_of_conf_can_be_asked_for(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = shown(capsys, name)
    assert re.search(rf"^{name}\n    default: ", text, re.MULTILINE)


def test_rows_that_only_mention_a_name_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "LEASE_S").count("(more: ") == 1


def test_an_unknown_word_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean configuration"):
        run(["configuraton"])
    with pytest.raises(UsageError, match=r"did you mean nproc_per_node\?"):
        run(["nproc"])
    with pytest.raises(UsageError, match="lists the pages"):
        run(["qqqqqq"])
    with pytest.raises(UsageError, match="takes one name"):
        run(["data", "design"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["clean", "--all"], "removes the directories of all ended jobs"),
        (["dashboard", "--host=0.0.0.0"], "its options are --port; it listens on 127.0.0.1"),
        (["dashboard", "8080"], "did you mean --port=8080?"),
        (["doctor", "root@a"], "give hosts as --hosts=root@a, or see"),
        (["doctor", "base.py"], "did you mean --conf=base.py?"),
        (["hosts", "hosts.ini"], "did you mean --hostfile=hosts.ini?"),
        (["stop", "--now"], "did you mean --force?"),
        (["logs", "-F"], "did you mean -f?"),
        (["clean", "7d"], "did you mean --older_than=7d?"),
        (["status", "--job=a"], "give the job alone: paddle.py status a"),
        (["checkpoints", "."], "for a workspace, -p ."),
        (["logs", "--tail=5"], "did you mean --lines=5?"),
        (["logs", "--rank", "1"], "did you mean --proc=trainer-1?"),
        (["logs", "--rank=1"], "did you mean --proc=trainer-1?"),
        (["logs", "--tail", "-f"], "did you mean --lines=...?"),
        (["logs", "-n", "20"], "did you mean --lines=20?"),
        (["logs", "-p", "some/ws"], "unknown job 'some/ws'"),
        (["stop", "--all"], "none of your jobs is running"),
        (["stop", "a", "b"], "run it for each one: paddle.py stop a; paddle.py stop b"),
        (["logs", "0"], "For a rank, give --proc=trainer-0"),
        (["logs", "trainer-0"], "give --proc=trainer-0"),
        (["status", "-o", "json"], "did you mean --json?"),
        (["status", "--hosts=a"], "--hosts has no effect without --nodes"),
        (["stop", "--hostfile=a"], "--hostfile has no effect without --nodes"),
    ],
)
def test_a_wrong_argument_of_a_command_is_refused_with_the_fix(
    argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match=re.escape(words)):
        main.perform(argv[0], argv[1:])


def test_a_command_takes_the_value_of_an_option_as_the_next_argument(tmp_path: Path) -> None:
    conf = tmp_path / "other.py"
    conf.write_text("")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("local\n")
    assert main.perform("hosts", ["--conf", str(conf), "--hostfile", str(hosts)]) is ExitCode.DONE


def test_a_command_that_would_copy_results_is_answered_with_their_place() -> None:
    with pytest.raises(UsageError, match=r"'fetch': when a job ends, .* are in output/ of the workspace"):
        main.named(["fetch"])


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("help_option", ["--help", "-h"])
def test_every_command_tells_how_it_is_used(
    capsys: pytest.CaptureFixture[str], name: str, help_option: str
) -> None:
    assert main.main([name, help_option]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"paddle.py {name}")
    assert max(map(len, told.splitlines())) <= 80
    offered = {word.rstrip("=") for word in offers([name, "--"], {}).words}
    assert offered <= set(re.findall(r"--[a-z_]+", told))
