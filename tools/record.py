# SPDX-License-Identifier: Apache-2.0
"""Records a command in its own terminal as an animated SVG: the picture of docs/index.md and README.

    python tools/record.py docs/run.svg -- sh run.sh

It needs `termtosvg` on the path, which is not a dependency of anything else here: `pipx install termtosvg`, with
`pipx inject termtosvg 'setuptools<81'`. The recording is of a complete real run, accelerated to half a minute; frames
less than half a second apart are merged, and the last one is shown for a while. The animation starts with the last
frame, which is also what readers see who prefer reduced motion.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

FRAME_MS = 500
STAYS_MS = 8000
FIRST_MS = 3000  # of the last frame, before the animation starts
BLOCK = 1 << 16


def main() -> int:
    """Record the command and render the recording."""
    parser = argparse.ArgumentParser(description="Records a command as an animated SVG.")
    parser.add_argument("svg", type=Path)
    parser.add_argument("command", nargs="+", help="after --: the command to record")
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--rows", type=int, default=34)
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit of the recording")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cast = Path(scratch, "run.cast")
        code = record(cast, given.command, given.columns, given.rows)
        if code == 0:
            hasten(cast, given.seconds)
            draw(cast, given.svg)
    return code


def record(cast: Path, command: list[str], columns: int, rows: int) -> int:
    """Run a command in a terminal and write its output as an asciicast; return its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    begun = time.monotonic()
    text = codecs.getincrementaldecoder("utf-8")("replace")
    with cast.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"version": 2, "width": columns, "height": rows}) + "\n")
        file.write(json.dumps([0.0, "o", f"$ {' '.join(command)}\r\n"]) + "\n")
        for data in _blocks(terminal):
            file.write(json.dumps([round(time.monotonic() - begun, 3), "o", text.decode(data)]) + "\n")
            os.write(sys.stdout.fileno(), data)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _blocks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, BLOCK)
        except OSError:  # the other end has been closed by all processes
            return
        if not data:
            return
        yield data


def hasten(cast: Path, seconds: float) -> None:
    """Accelerate an asciicast to the given number of seconds."""
    head, *events = [json.loads(line) for line in cast.read_text(encoding="utf-8").splitlines()]
    share = min(1.0, seconds / events[-1][0])
    hastened = [head, *([at * share, kind, text] for at, kind, text in events)]
    cast.write_text("".join(json.dumps(one) + "\n" for one in hastened), encoding="utf-8")


def draw(cast: Path, svg: Path) -> None:
    """Render an asciicast."""
    limits = ["-m", str(FRAME_MS), "-D", str(STAYS_MS), "-t", "window_frame"]
    subprocess.run(["termtosvg", "render", str(cast), str(svg), *limits], check=True)
    svg.write_text(resting(svg.read_text(encoding="utf-8")), encoding="utf-8")


def resting(drawn: str) -> str:
    """Return a drawing that starts with its last frame, and shows only that one if motion is to be reduced."""
    last = re.findall(r"\{transform:(translateY\(-?\d+px\))\}", drawn)[-1]
    duration = int(re.findall(r"animation-duration: (\d+)ms", drawn)[0])
    style = f"""
            #screen_view {{
                transform: {last};
                animation-delay: {FIRST_MS - duration}ms;
            }}
            @media (prefers-reduced-motion: reduce) {{
                #screen_view {{animation: none}}
            }}
        ]]></style>"""
    return re.sub(r"\s*\]\]></style>", lambda _: style, drawn, count=1)


if __name__ == "__main__":
    sys.exit(main())
