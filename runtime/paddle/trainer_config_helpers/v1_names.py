# SPDX-License-Identifier: Apache-2.0
"""Derives the v1 names of v2's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddle.errors import did_you_mean

# layers whose v1 name is the v2 name plus "_layer"
_OTHERWISE: Mapping[str, str] = {
    "cross_entropy_cost": "cross_entropy",
    "cross_entropy_with_selfnorm_cost": "cross_entropy_with_selfnorm",
    "max_id": "maxid_layer",
    "multi_binary_label_cross_entropy_cost": "multi_binary_label_cross_entropy",
}
_UNCHANGED = frozenset(
    [
        "beam_search",
        "cross_entropy_over_beam",
        "factorization_machine",
        "first_seq",
        "grumemory",
        "hsigmoid",
        "last_seq",
        "layer_support",
        "lstmemory",
        "memory",
        "parse_network",
        "recurrent_group",
    ]
)
_UNCHANGED_ENDS = ("_projection", "_operator", "_cost", "_sim")


def layer_name(name: str) -> str:
    """Convert the name of a v2 layer function to its v1 name, such as "fc" to "fc_layer"."""
    if name in _OTHERWISE:
        return _OTHERWISE[name]
    is_class = name[:1].isupper()
    if is_class or name in _UNCHANGED or name.endswith(_UNCHANGED_ENDS):
        return name
    return f"{name}_layer"


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the AttributeError for a name that a module does not have."""
    return AttributeError(f"module {module!r} has no attribute {name!r}{did_you_mean(name, known)}")
