# SPDX-License-Identifier: Apache-2.0
"""Whether a directory that nodes have already (--job_workspace) holds the same code on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from launcher.nodes.checks.reply import Demands, Reply
from launcher.nodes.findings import Finding

NAMED = 5  # files that a finding names


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Files are compared with what most nodes have; with --allow_mismatch the job goes on."""
    asked = {reply.name: reply.answer.code for reply in replies if reply.answer.code is not None}
    usual = _usual(list(asked.values()))
    for name, code in asked.items():
        different = [path for path in usual if code.get(path) != usual[path]]
        if different:
            more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
            text = ", ".join(_how(path, usual[path], code.get(path)) for path in different[:NAMED])
            way = "" if demands.allow_mismatch else " (--allow_mismatch goes on)"
            yield Finding(
                name,
                "workspace",
                f"not the code that most nodes have: {text}{more}; copy one to all, or use --job_dispatch_package{way}",
                serious=not demands.allow_mismatch,
            )


def _usual(codes: Sequence[Mapping[str, str]]) -> dict[str, str | None]:
    """What most nodes have, the first ones where as many have something else; None: it is not there."""
    paths = dict.fromkeys(path for code in codes for path in code)
    return {path: Counter(code.get(path) for code in codes).most_common(1)[0][0] for path in sorted(paths)}


def _how(path: str, usual: str | None, have: str | None) -> str:
    if have is None:
        return f"{path} is missing"
    return f"{path} is only here" if usual is None else f"{path} differs"
