# SPDX-License-Identifier: Apache-2.0
"""Error messages for names that `paddle.layer` lacks: older names of its layers, and names from configuration files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.errors import did_you_mean

# name in version 0.10, or of a keyword of Python 2 -> the name that 0.11 gave to the same layer
RENAMED: Mapping[str, str] = {
    "huber_cost": "huber_classification_cost",
    "mse_cost": "square_error_cost",
    "print": "printer",
}
# names of configurations for `paddle train` that v2 changed by more than leaving out "_layer"
_OF_CONFIGURATIONS: Mapping[str, str] = {
    "cross_entropy": "cross_entropy_cost",
    "cross_entropy_with_selfnorm": "cross_entropy_with_selfnorm_cost",
    "maxid_layer": "max_id",
    "multi_binary_label_cross_entropy": "multi_binary_label_cross_entropy_cost",
}


def explain(name: str, known: Sequence[str]) -> AttributeError:
    """Return the error for a name that is not in ``paddle.layer``."""
    now = _OF_CONFIGURATIONS.get(name, name.removesuffix("_layer"))
    if now != name and now in known:
        return AttributeError(
            f"module 'paddle.v2.layer' has no attribute {name!r}: v2 calls this layer {now!r}"
        )
    text = f"module 'paddle.v2.layer' has no attribute {name!r}{did_you_mean(name, known)}"
    return AttributeError(text, name=name, obj=None)  # otherwise Python appends the same suggestion
