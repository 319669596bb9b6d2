# SPDX-License-Identifier: Apache-2.0
"""Every place where bytes of others enter, and how it is attacked: who makes a new place adds a line to the table.

An attack takes one example and returns; it lets through what users are told (a LauncherError), and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import format_attacks, job_attacks, launcher_attacks, state_attacks


@dataclass(frozen=True)
class Entry:
    """One place.

    Attributes:
        examples: what is thrown at it.
        attack: throws one example; anything that it raises is a finding.
        in_suite: examples that the suite tries each time.
    """

    examples: st.SearchStrategy[Any]
    attack: Callable[[Any], None]
    in_suite: int = 40


ENTRIES: Mapping[str, Entry] = {
    "frame_bytes_from_nodes": Entry(launcher_attacks.agent_bytes, launcher_attacks.decode_agent_bytes, 40),
    "frames_from_nodes": Entry(job_attacks.messages, job_attacks.handle_messages, 25),
    "frames_from_launchers": Entry(job_attacks.requests, job_attacks.ask_agent, 20),
    "answers_to_preflight": Entry(launcher_attacks.answers, launcher_attacks.judge_answers),
    "report_lines": Entry(launcher_attacks.report_bytes, launcher_attacks.read_reports, 50),
    "control_requests": Entry(launcher_attacks.request_bytes, launcher_attacks.ask_control, 40),
    "control_frames": Entry(launcher_attacks.control_bytes, launcher_attacks.follow_control, 30),
    "state_files": Entry(state_attacks.state_files, state_attacks.show_state_files),
    "commands_over_state_files": Entry(state_attacks.commands, state_attacks.run_commands, 60),
    "digest_memories": Entry(state_attacks.memories, state_attacks.recall_digests),
    "node_records": Entry(state_attacks.node_records, state_attacks.tell_node_records),
    "listed_manifests": Entry(state_attacks.manifests, state_attacks.list_manifest),
    "known_pythons": Entry(state_attacks.known_pythons, state_attacks.recall_python),
    "conf_values": Entry(launcher_attacks.conf_values, launcher_attacks.resolve_conf),
    "programs": Entry(format_attacks.programs, format_attacks.parse_program),
    "tensors": Entry(format_attacks.tensors, format_attacks.read_tensors),
    "wheels": Entry(format_attacks.wheels, format_attacks.unpack_wheel),
    "parameter_tars": Entry(format_attacks.tars, format_attacks.read_parameters),
    "checkpoint_manifests": Entry(format_attacks.manifests, format_attacks.read_manifest),
    "pserver_messages": Entry(format_attacks.frames, format_attacks.read_message),
    "pserver_streams": Entry(format_attacks.packets, format_attacks.read_packets),
    "sealed_streams": Entry(format_attacks.sealed, format_attacks.read_sealed),
    "collective_greetings": Entry(format_attacks.greetings, format_attacks.greet_rank),
}
