# SPDX-License-Identifier: Apache-2.0
"""`paddle make_diagram CONFIG FILE [config_args]`: draws the network of a configuration.

FILE.svg is a drawing for browsers; any other FILE is text for Graphviz, as in the original.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from paddle.trainer.config_parser import parse_config
from paddle.v2.errors import ModelFileError
from paddle.v2.model import LayerConfig
from paddle.v2.network import Network, sources

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 46, 24, 44, 20
_NAME_LENGTH = 28


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the network of a configuration; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not 2 <= len(given) <= 3:
        sys.stderr.write("usage: paddle make_diagram CONFIG FILE.svg|FILE.dot [config_args]\n")
        return 1
    make_diagram(*given)
    return 0


def make_diagram(config_file: str, dot_file: str, config_arg_str: str = "") -> None:
    """Draw the network of a configuration file.

    Args:
        dot_file: output file; SVG if its name ends in .svg, else text for Graphviz.

    Raises:
        ModelFileError: the diagram cannot be written.
    """
    network = parse_config(config_file, config_arg_str).network
    draw = svg if dot_file.endswith(".svg") else dot
    try:
        Path(dot_file).write_text(draw(network), encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"cannot write the drawing {dot_file}: {error.strerror}") from error


def dot(network: Network) -> str:
    """Return the network as Graphviz text: a node for each layer, a box around each recurrent group."""
    lines = ["digraph graphname {"]
    groups: dict[str, list[str]] = {}
    numbers = {name: number for number, name in enumerate(network.layers)}
    for name, layer in network.layers.items():
        label = "\\n".join(text.replace('"', "'") for text in _texts(layer))
        groups.setdefault(layer.group, []).append(f'node{numbers[name]} [label="{label}", shape=box];')
    for number, (group, nodes) in enumerate(groups.items()):
        if group:
            lines += [f"subgraph cluster_{number} {{", f'label="{group}";', *nodes, "}"]
        else:
            lines += nodes
    lines += [f"node{numbers[a]} -> node{numbers[b]};" for a, b in _edges(network)]
    return "\n".join([*lines, "}", ""])


def svg(network: Network) -> str:
    """Return an SVG drawing with the inputs at the top, and each layer below all layers that it reads."""
    places = _places(network)
    columns = max((column for column, _ in places.values()), default=0) + 1
    rows = max((row for _, row in places.values()), default=0) + 1
    width = 2 * _MARGIN + columns * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + rows * (_HEIGHT + _GAP_Y) - _GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        '<marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker>',
    ]
    for source, target in _edges(network):
        (x1, y1), (x2, y2) = _corner(places[source]), _corner(places[target])
        lines.append(
            f'<line x1="{x1 + _WIDTH // 2}" y1="{y1 + _HEIGHT}" x2="{x2 + _WIDTH // 2}" y2="{y2}" stroke="#555" '
            'marker-end="url(#end)"/>'
        )
    for name, layer in network.layers.items():
        x, y = _corner(places[name])
        fill = "#dbe9f6" if layer.type == "data" else "#f3ead6" if "coeff" in layer.attrs else "#fff"
        lines.append(
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{fill}" stroke="#333"/>'
        )
        for line, text in enumerate(_texts(layer)):
            shown = text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"
            lines.append(
                f'<text x="{x + _WIDTH // 2}" y="{y + 19 + 16 * line}" text-anchor="middle">{escape(shown)}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def _texts(layer: LayerConfig) -> tuple[str, str]:
    active = f" {layer.activation}" if layer.activation else ""
    return layer.name, f"{layer.type}{active} {layer.size}"


def _edges(network: Network) -> Iterator[tuple[str, str]]:
    for name, layer in network.layers.items():
        yield from ((source, name) for source in dict.fromkeys(sources(layer)) if source in network.layers)


def _places(network: Network) -> Mapping[str, tuple[int, int]]:
    """Return column and row of each layer; its row is below those of all layers that it reads."""
    rows: dict[str, int] = {}
    taken: dict[int, int] = {}
    found = {}
    for name, layer in network.layers.items():
        row = max((rows[source] + 1 for source in sources(layer) if source in rows), default=0)
        rows[name] = row
        found[name] = taken.get(row, 0), row
        taken[row] = taken.get(row, 0) + 1
    return found


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    column, row = place
    return _MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y)


if __name__ == "__main__":
    sys.exit(main())
