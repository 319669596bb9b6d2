# SPDX-License-Identifier: Apache-2.0
"""beam_search: generates sentences word by word, given the probabilities of the next word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle.v2 import model
from paddle.v2.attr import ParameterAttribute
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.group import StaticInput, memories_of, opened, seen_by_steps
from paddle.v2.layer.mixed import embedding
from paddle.v2.layer.output import LayerOutput, declare
from paddle.v2.model import Attrs, InputConfig, LayerConfig
from paddle_node.contract.classes import dataclass

__all__ = ["BaseGeneratedInput", "GeneratedInput", "beam_search"]

PREDICTED = "__beam_search_predict__"
"""The name of a configuration's first `beam_search`, which `Outputs` of old configurations uses."""
_PRODUCTS = ("fc", "mixed", "selective_fc")
_POSITIVE = ("softmax", "exponential", "sigmoid")


class BaseGeneratedInput:
    """Base class of inputs of `beam_search` that stand for the previously generated word."""

    def before_real_step(self) -> LayerOutput:
        """Declare the layer that the step of `beam_search` receives for this input."""
        raise NotImplementedError(f"{type(self).__name__}.before_real_step")

    def after_real_step(self, *args: Any) -> LayerOutput:
        """Return the layer of the next word's probabilities, given the step's result."""
        raise NotImplementedError(f"{type(self).__name__}.after_real_step")


@dataclass(frozen=True)
class GeneratedInput(BaseGeneratedInput):
    """The last generated word as an input of `beam_search`: its row in an embedding table [size, embedding_size]."""

    size: int
    embedding_name: str
    embedding_size: int

    def before_real_step(self) -> LayerOutput:
        """Declare the embedding of the last generated word."""
        name = model.current().auto_name("generated_word")
        word = declare(LayerConfig(name, "generated_word", self.size), [])
        return embedding(word, self.embedding_size, param_attr=ParameterAttribute(name=self.embedding_name))

    def after_real_step(self, input: LayerOutput) -> LayerOutput:
        """Check the step's result and return it: the layer of the next word's probabilities.

        Raises:
            UsageError: the step's result is not a layer of this size, or is a product without a positive activation.
        """
        if (
            not isinstance(input, LayerOutput)
            or input.size != self.size
            or (input.layer_type in _PRODUCTS and input.activation not in _POSITIVE)
        ):
            raise UsageError(
                "beam_search: the step must return a layer with Softmax, or a combination of such layers, of size "
                f"{self.size}; got {input!r}"
            )
        return input


def beam_search(
    step: Callable[..., LayerOutput],
    input: StaticInput | BaseGeneratedInput | Sequence[StaticInput | BaseGeneratedInput | Any],
    bos_id: int,
    eos_id: int,
    beam_size: int,
    max_length: int = 500,
    name: str | None = None,
    num_results_per_sample: int | None = None,
) -> LayerOutput:
    """Declare a beam search, which generates the most likely sentences word by word.

    `infer` returns the fields "prob" (samples, results) and "id".

    Args:
        step: called once; returns the probabilities of the next word, a layer with activation Softmax.
        input: `StaticInput`s and one `GeneratedInput`; other values, such as numbers, are passed to `step` unchanged.
        bos_id: the word before the first one.
        eos_id: the word that ends a sentence.
        beam_size: number of continuations to follow.
        max_length: maximum length of a sentence.
        name: name of the group; it must be the trained group's name, because parameter names end with it.
        num_results_per_sample: the number of sequences to return; None means beam_size.
    """
    space = model.current()
    name = space.auto_name("recurrent_group", name)
    inputs = list(input) if isinstance(input, (list, tuple)) else [input]
    generated = [each for each in inputs if isinstance(each, GeneratedInput)]
    if len(generated) != 1 or any(isinstance(each, LayerOutput) for each in inputs):
        raise UsageTypeError(
            f"beam_search {name!r} takes StaticInputs and one GeneratedInput, got {inputs!r:.200}"
        )
    results = beam_size if num_results_per_sample is None else num_results_per_sample
    if not 1 <= results <= beam_size:
        raise UsageError(f"beam_search: num_results_per_sample must be 1 to {beam_size}, got {results}")
    with space.steps_of(name):
        seen = [
            each.before_real_step() if isinstance(each, GeneratedInput) else seen_by_steps(each)
            for each in inputs
        ]
        out = generated[0].after_real_step(step(*seen))
        memories = memories_of(name)
    statics = any(isinstance(each, StaticInput) for each in inputs)
    if not statics and not any(space.layers[each].inputs for each in memories):
        raise UsageError(
            f"beam_search {name!r} needs a StaticInput, or a memory with a boot_layer, to know the number of "
            "samples"
        )
    attrs: Attrs = {
        "group_name": name,
        "bos_id": bos_id,
        "eos_id": eos_id,
        "beam_size": beam_size,
        "max_length": max_length,
        "num_results": results,
    }
    # A StaticInput that no layer of the step reads can still determine the number of samples.
    kept = [each for each, given in zip(seen, inputs, strict=True) if isinstance(given, StaticInput)]
    needed = dict.fromkeys([out.name, *memories.values(), *(each.name for each in kept)])
    own = PREDICTED if PREDICTED not in space.layers else space.auto_name("beam_search_predict")
    links = tuple(map(InputConfig, needed))
    return declare(LayerConfig(own, "beam_search", results, links, attrs=attrs), [out, *kept])


@emits("beam_search")
def _beam_search(emitter: Emitter, config: LayerConfig) -> None:
    group = str(config.attrs["group_name"])
    body, after = opened(emitter, group)
    members = [each for each in emitter.layers.values() if each.group == group]
    word = emitter.ids[next(each.name for each in members if each.type == "generated_word")]
    keys = ("bos_id", "eos_id", "beam_size", "max_length", "num_results")
    found = {key: config.attrs[key] for key in keys}
    prob, ids = body.search(word, emitter.first(config), after, found)
    emitter.ids[config.name] = ids
    emitter.set_rows(config.name, prob)


@emits("generated_word")
def _emit_word(emitter: Emitter, config: LayerConfig) -> None:
    word = emitter.temp([-1, 1], "int64")
    word.stop_gradient = True
    emitter.set_rows(config.name, word)
