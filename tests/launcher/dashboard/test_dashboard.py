# SPDX-License-Identifier: Apache-2.0
"""The dashboard over HTTP: who is let in, what a page is told of real jobs, and what it may ask of them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from paddle_cluster.dashboard import server as dashboard
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.dashboard.server import DashboardServer
from paddle_cluster.system.state_dir import StatePlaces
from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import Bench

LIMIT_S = 60.0
FAILS = "print('almost there', flush=True)\nraise RuntimeError('seventeen columns')\n"
FIRST = re.compile(r'<script id="first" type="application/json">(.*)</script>')


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """Asks a server as a browser does, or as one that was led astray."""

    def __init__(self, server: DashboardServer) -> None:
        self.server = server
        self.port = server.server_port
        self.path = urlsplit(server.address).path

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request; the path is below the token unless it begins with a slash."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        sent = {"Content-Type": "application/json"} if body is not None else {}
        try:
            target = path if path.startswith("/") else self.path + path
            connection.request(
                method, target, None if body is None else json.dumps(body), {**sent, **(headers or {})}
            )
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read().decode())
        finally:
            connection.close()

    def first(self, job_id: str = "") -> dict[str, Any]:
        """What the page shows before any event."""
        answer = self.ask("?" + urlencode({"job": job_id}))
        assert answer.status == 200, answer
        (found,) = FIRST.findall(answer.text)
        value = json.loads(found)
        assert isinstance(value, dict)
        return value

    def events(self, job_id: str, enough: Callable[[list[tuple[str, Any]]], bool]) -> list[tuple[str, Any]]:
        """Server-sent events until there are enough."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        found: list[tuple[str, Any]] = []
        try:
            connection.request("GET", self.path + "events?" + urlencode({"job": job_id}))
            response = connection.getresponse()
            assert response.headers["Content-Type"].startswith("text/event-stream")
            name = ""
            while not enough(found):
                line = response.readline().decode()
                assert line, f"the stream ended after {found}"
                field, _, value = line.rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    found.append((name, json.loads(value)))
        finally:
            connection.close()
        return found


@pytest.fixture
def open_page() -> Iterator[Callable[[StatePlaces], Browser]]:
    started: list[tuple[DashboardServer, threading.Thread]] = []

    def start(where: StatePlaces) -> Browser:
        server = DashboardServer(JobBoard(where))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        started.append((server, thread))
        return Browser(server)

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join(LIMIT_S)
        server.server_close()


@pytest.fixture
def page(tmp_path: Path, open_page: Callable[[StatePlaces], Browser]) -> Browser:
    """A page without jobs."""
    return open_page(StatePlaces(tmp_path / "none", tmp_path / "short"))


def test_the_page_and_its_files_come_with_the_token(page: Browser) -> None:
    answer = page.ask("")
    assert answer.status == 200
    named = re.findall(r'(?:src|href)="([\w.]+)"', answer.text)
    assert {"page.js", "page.css", "uPlot.iife.min.js"} <= set(named)
    for name in named:
        assert page.ask(name).status == 200
    imported = re.findall(r'from "\./([\w.]+)"', page.ask("page.js").text)
    assert {page.ask(name).headers["content-type"] for name in imported} == {"text/javascript; charset=utf-8"}


def test_every_answer_forbids_scripts_of_others_and_copies(page: Browser) -> None:
    for answer in (page.ask(""), page.ask("page.js"), page.ask("/"), page.ask("nothing")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_requests_without_the_token_are_refused(page: Browser) -> None:
    token = page.path.strip("/")
    for path in (
        "/",
        "/page.js",
        "/events",
        f"/{token}",
        f"/{token[:-1]}/",
        f"/{token}x/",
        "/%C3%A9/",
    ):
        assert page.ask(path).status == 403, path
    assert page.ask("/stop", "POST", {"job": "x"}).status == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_foreign_host_name_is_refused(page: Browser, host: str) -> None:
    assert page.ask("", headers={"Host": host.format(port=page.port)}).status == 403


def test_localhost_is_a_name_of_it(page: Browser) -> None:
    assert page.ask("", headers={"Host": f"localhost:{page.port}"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_requests_from_other_sites_are_refused(page: Browser, headers: dict[str, str]) -> None:
    assert page.ask("stop", "POST", {"job": "x"}, headers).status == 403
    assert page.ask("", headers=headers).status == 403


def test_a_stop_is_a_post_of_json(page: Browser) -> None:
    assert page.ask("stop").status == 405
    assert page.ask("stop?job=x").status == 405
    assert page.ask("", "POST", {}).status == 405
    assert page.ask("stop", "POST", {"job": "x"}, {"Content-Type": "text/plain"}).status == 415
    assert page.ask("stop", "POST", ["x"]).status == 400
    assert page.ask("stacks").status == 405
    assert page.ask("stop", "POST", {"job": "x" * 5000}).status == 413
    assert page.ask("stop", "POST", {"job": "x" * 2_000_000}).status == 413  # answered while most is unread
    assert page.ask("stop", "POST", {"job": "x"}).status == 404
    assert page.ask("log?job=x").status == 404
    assert page.ask("../server.py").status == 404


def test_connections_are_bounded_and_those_that_end_make_room(
    page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "CONNECTIONS", 3)
    silent = [socket.create_connection(("127.0.0.1", page.port), LIMIT_S) for _ in range(4)]
    assert silent[3].recv(1) == b""  # one too many
    for one in silent:
        one.close()

    def is_served() -> bool:
        try:
            return page.ask("").status == 200
        except OSError:
            return False

    wait_for("room for one more", is_served, LIMIT_S)


def test_a_job_is_seen_stopped_and_searched(
    bench: Bench, open_page: Callable[[StatePlaces], Browser]
) -> None:
    page = open_page(bench.where)
    job = bench.detach()

    def is_shown(found: list[tuple[str, Any]]) -> bool:
        states = [
            row["state"] for name, part in found if name == "processes" for row in part["rows"].values()
        ]
        lines = [line for name, part in found if name == "log" for line in part["lines"]]
        return "running" in states and any("[trainer 0 local-0] step 5" in line for line in lines)

    events = page.events(job.job_id, is_shown)
    assert [name for name, _ in events[:2]] == ["jobs", "job"]
    assert events[0][1][0]["id"] == job.job_id
    head = next(part for name, part in reversed(events) if name == "job")
    assert (head["tone"], head["can_be_asked"]) == ("busy", True)
    (checks,) = [part for name, part in events if name == "preflight" and part is not None]
    assert (checks["headers"][0], checks["rows"][0][0], checks["wrong"]) == ("node", "local-0", 0)
    assert page.first()["job"]["id"] == job.job_id  # the one that runs, where none is named

    where = json.loads(
        page.ask("stacks", "POST", {"job": job.job_id, "processes": ["trainer-0", "trainer-7"]}).text
    )
    assert re.search(r'File ".*/train.py", line \d+', where["stacks"]["trainer-0"])
    assert where["stacks"]["trainer-7"] == "(no such process)"

    stopped = page.ask("stop", "POST", {"job": job.job_id, "force": False})
    assert (stopped.status, json.loads(stopped.text)["told"]) == (200, f"asked {job.job_id} to stop")
    ended = bench.wait_until_ended(job)
    assert ended.exit_code == 143
    wait_for("the page's view of the end", lambda: page.first(job.job_id)["job"]["exit_code"] == 143, LIMIT_S)
    assert page.ask("stacks", "POST", {"job": job.job_id, "processes": ["trainer-0"]}).status == 409
    again = page.ask("stop", "POST", {"job": job.job_id})
    assert again.status == 409
    assert "has already ended" in again.text

    found = json.loads(page.ask("log?" + urlencode({"job": job.job_id, "text": "STEP 3"})).text)
    assert next(line.partition("] ")[2] for line in found["lines"]) == "step 3"
    by_launcher = json.loads(page.ask(f"log?job={job.job_id}&process=launcher&text=paddle.py+dashboard").text)
    assert any("asked by paddle.py dashboard" in line for line in by_launcher["lines"])
    assert json.loads(page.ask(f"log?job={job.job_id}&text=(a%2B)%2B").text)["lines"] == []
    options = {name: (value, where) for name, value, where in page.first(job.job_id)["job"]["options"]}
    assert options["mode"] == ("collective", "--mode")
    assert options["STOP_GRACE_S"] == ("1.0", "conf.py:3")
    saved = page.ask(f"download?job={job.job_id}&process=trainer-0")
    assert saved.headers["content-disposition"] == f'attachment; filename="{job.job_id}-trainer-0.log"'
    lines = saved.text.splitlines()
    assert [line.partition("] ")[2] for line in lines[:3]] == ["step 0", "step 1", "step 2"]
    assert len(page.ask(f"download?job={job.job_id}").text.splitlines()) > len(lines)
    assert page.ask(f"download?job={job.job_id}&process=rm").status == 400
    wrong = json.loads(page.ask(f"log?job={job.job_id}&process=rm").text)
    assert "such as trainer-2" in wrong["told"]


def test_a_job_that_failed_says_why_and_one_that_is_done_does_not(
    bench: Bench, open_page: Callable[[StatePlaces], Browser]
) -> None:
    page = open_page(bench.where)
    bench.workspace("wrong")
    (bench.place / "wrong" / "train.py").write_text(FAILS)
    for workspace, code in (("ws", 0), ("wrong", 1)):
        assert bench.run("-p", workspace, "--conf=conf.py", "--mode=collective").returncode == code
    failed, done = (page.first(job.job_id) for job in bench.jobs())
    assert (done["job"]["tone"], done["failure"]) == ("good", None)
    assert done["processes"]["rows"]["trainer-0"]["code"] == 0
    assert failed["job"]["tone"] == "bad"
    cause = failed["failure"]["first_cause"]
    assert (cause["process"], cause["error"]) == ("trainer-0", "RuntimeError: seventeen columns")
    assert "almost there" in cause["log_end"]
    assert [job["tone"] for job in failed["jobs"]] == ["bad", "good"]
    assert any("almost there" in line for line in failed["log"]["lines"])
    assert any("step 2" in line for line in done["log"]["lines"])
    other = json.loads(page.ask("curves?" + urlencode({"job": done["job"]["id"]})).text)
    assert other == {name: done[name] for name in ("curve", "curves")}
    assert page.ask("curves?job=unknown").status == 404


def test_text_of_a_job_cannot_end_the_script_that_holds_it(
    bench: Bench, open_page: Callable[[StatePlaces], Browser]
) -> None:
    bench.workspace("<!--<script><img src=x>")
    assert bench.run("-p", "<!--<script><img src=x>", "--conf=conf.py", "--mode=collective").returncode == 0
    page = open_page(bench.where)
    text = page.ask("").text
    assert "<img" not in text
    assert page.first()["job"]["workspace"].endswith("/<!--<script><img src=x>")


def test_a_page_that_is_open_is_sent_what_changed(
    bench: Bench, open_page: Callable[[StatePlaces], Browser]
) -> None:
    assert bench.run("-p", "ws", "--conf=conf.py", "--mode=collective").returncode == 0
    page = open_page(bench.where)
    (job,) = bench.jobs()
    file = job.directory / "status.json"
    status = json.loads(file.read_text())
    row = status["processes"][0]
    status["processes"].append({**row, "name": "trainer-1", "rank": 1})
    file.write_text(json.dumps(status))

    def changed(found: list[tuple[str, Any]]) -> bool:
        parts = [part for name, part in found if name == "processes"]
        if len(parts) == 1:  # the first is all that there is
            status["processes"] = [{**row, "last_line": "new"}]
            file.write_text(json.dumps(status))
        return len(parts) > 1

    parts = [part for name, part in page.events(job.job_id, changed) if name == "processes"]
    assert sorted(parts[0]["rows"]) == ["trainer-0", "trainer-1"]
    assert parts[1]["gone"] == ["trainer-1"]
    assert parts[1]["rows"]["trainer-0"]["last_line"] == "new"


def test_the_command_prints_the_address_and_serves_until_it_is_interrupted(bench: Bench) -> None:
    child = subprocess.Popen(
        bench.argv("dashboard"),
        cwd=bench.place,
        env=bench.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        address = urlsplit(child.stdout.readline().strip())
        connection = HTTPConnection("127.0.0.1", address.port or 0, timeout=LIMIT_S)
        connection.request("GET", address.path)
        assert connection.getresponse().status == 200
        connection.close()
        child.terminate()
        assert child.wait(LIMIT_S) == 143
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_every_curve_can_be_read_on_a_light_and_on_a_dark_card() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    css = (Path(str(dashboard.__file__)).parent / "page" / "page.css").read_text()
    cards = [code if len(code) == 6 else code * 2 for code in re.findall(r"--card: #(\w+);", css)]
    curves = re.findall(r"--curve-\d: #(\w+);", css)
    assert (len(cards), len(set(curves))) == (2, 16)
    for card, colours in zip(cards, (curves[:8], curves[8:]), strict=True):
        for colour in colours:
            dark, bright = sorted((light(card), light(colour)))
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (colour, card)
