# SPDX-License-Identifier: Apache-2.0
"""The settings of a login agree with `ssh -G`, or the configuration is refused with its line."""

from __future__ import annotations

import getpass
import itertools
import os
import pwd
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.login import FabricLogins
from paddle_cluster.ssh.route import HostConfig
from tests.launcher.ssh.generated_config import FILES, NAMES

EXAMPLES = 200
SSH = shutil.which("ssh")
HOME = pwd.getpwuid(os.getuid()).pw_dir
REFUSED = re.compile(r"line [0-9]+: |jumphost loop via |form a loop|inconsistent options")

pytestmark = pytest.mark.skipif(SSH is None, reason="needs ssh (openssh-client)")


def printed(config: Path, target: str) -> dict[str, list[str]] | None:
    """What `ssh -G` prints, or None where it refuses."""
    assert SSH is not None
    words = [SSH, "-T", "-G", "-F", str(config), f"ssh://{target}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found if done.returncode == 0 else None


def resolved(config: Path, target: str) -> tuple[tuple[HostConfig, ...], str]:
    """The logins that the product would make, or why it makes none."""
    logins = FabricLogins(SshSettings(config=config, known_hosts=config.parent / "known"))
    try:
        return logins.hops(parse_host(target)), ""
    except ConnectError as error:
        return (), error.reason


def expanded(text: str, found: Mapping[str, list[str]], name: str) -> str:
    host, port, user = (found[option][0] for option in ("hostname", "port", "user"))
    alias = found.get("hostkeyalias", [name])[0]
    values = {
        "h": host,
        "n": name,
        "p": port,
        "r": user,
        "u": getpass.getuser(),
        "d": HOME,
        "k": alias,
        "%": "%",
    }
    text = re.sub("^~/", f"{HOME}/", text.replace("${LAB}", "lab"))
    return re.sub("%(.)", lambda token: values[token[1]], text)


def names_of(text: str) -> list[str]:
    return [name for name in re.split(" (?=[/~])", text) if name != "none"]


def check(hop: HostConfig, found: Mapping[str, list[str]], name: str) -> None:
    """Compare one login with what `ssh -G` printed."""

    def one(option: str, default: str = "") -> str:
        value = found.get(option, [default])[0]
        return default if value == "none" else value

    assert (hop.host, hop.user, str(hop.port)) == (one("hostname"), one("user"), one("port"))
    assert hop.jump == re.sub(r"\[([0-9.]+)\]", r"\1", one("proxyjump"))
    assert hop.proxy_command == expanded(one("proxycommand"), found, name)
    assert hop.key_alias == one("hostkeyalias")
    keys = [expanded(key, found, name) for key in found["identityfile"] if key != "none"]
    assert [str(key) for key in hop.keys] == list(dict.fromkeys(key for key in keys if Path(key).is_file()))
    for key in keys:
        if not Path(key).exists() and "/key-" in key:
            assert any(
                missing.startswith(f"{key} does not exist (IdentityFile, ") for missing in hop.missing_keys
            )
    assert hop.identities_only == (one("identitiesonly") == "yes")
    agent = one("identityagent", "" if found.get("identityagent") == ["none"] else "/tmp/agent-of-env")
    assert hop.agent == {"SSH_AUTH_SOCK": "/tmp/agent-of-env", "$LAB": "lab"}.get(agent, agent)
    assert [str(path) for path in hop.certificates] == [
        expanded(text, found, name) for text in found.get("certificatefile", [])
    ]
    assert [str(path) for path in hop.known_hosts[1:]] == [
        expanded(text, found, name) for text in names_of(found["userknownhostsfile"][0])
    ]
    assert (hop.family, hop.bind) == (one("addressfamily"), one("bindaddress"))
    ciphers = found["ciphers"][0].split(",")
    assert dict(hop.algorithms).get("ciphers", tuple(ciphers)) == tuple(ciphers)
    assert (
        "ciphers" in dict(hop.algorithms) or "chacha20-poly1305@openssh.com" in ciphers
    )  # of ssh's defaults
    assert [str(path) for path in hop.global_known_hosts] == names_of(found["globalknownhostsfile"][0])


@pytest.mark.parametrize("path", [os.environ["PATH"], "/nowhere"], ids=["ssh installed", "no ssh installed"])
def test_generated_configurations_give_the_settings_of_ssh_or_are_refused_with_the_line(
    tmp_path: Path, path: str
) -> None:
    numbers, outcomes = itertools.count(), Counter[str]()

    @given(
        FILES, st.sampled_from(NAMES), st.sampled_from(["", "", "ada@"]), st.sampled_from(["", "", ":2200"])
    )
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def compare(files: Mapping[str, str], name: str, user: str, port: str) -> None:
        folder = tmp_path / str(next(numbers))
        (folder / "more").mkdir(parents=True)
        for word in ("ada", "plain", "two words", "lab"):
            (folder / f"key-{word}").touch()
        for file, text in files.items():
            (folder / file).write_text(text.replace("{folder}", str(folder)) + "\n")
        target = f"{user}{name}{port}"
        expected = printed(folder / "config", target)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PATH", path)
            hops, refused = resolved(folder / "config", target)
        if refused:
            assert REFUSED.search(refused), refused
            outcomes["refused by both" if expected is None else "refused"] += 1
            return
        assert expected is not None, hops
        check(hops[-1], expected, name)
        outcomes["agreed"] += 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LAB", "lab")
        patched.setenv("SSH_AUTH_SOCK", "/tmp/agent-of-env")
        compare()
    assert outcomes["agreed"] > EXAMPLES / 4, outcomes
