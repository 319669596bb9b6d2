# SPDX-License-Identifier: Apache-2.0
"""Structured losses: CRF and CTC with their decoders, NCE, hierarchical sigmoid and sampled softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import NumpyArrayInitializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.shaping import topk
from paddle.fluid.layers.plain import layer
from paddle.fluid.param_attr import ParamAttr, to_attr
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = [
    "crf_decoding", "ctc_greedy_decoder", "hsigmoid", "linear_chain_crf", "nce",
    "sampled_softmax_with_cross_entropy", "warpctc",
]  # fmt: skip

_SAMPLERS = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}


linear_chain_crf = layer(
    "linear_chain_crf(input, label, param_attr=None)",
    """the negative log likelihood of each sequence's labels (sequences, 1).

    Row 0 of the parameter (tags + 2, tags) scores first tags, row 1 last tags, the other rows transitions""",
    learnt={"Transition": lambda given: (given["input"].shape[1] + 2, given["input"].shape[1])},
)


def _transition(given: Mapping[str, Any]) -> dict[str, Any]:
    attr = to_attr(given["param_attr"])
    if attr is None or not attr.name:
        raise FluidError("crf_decoding: param_attr must name the parameter of linear_chain_crf")
    return {"param_attr": None, "transition": default_main_program().global_block().var(attr.name)}


crf_decoding = layer(
    "crf_decoding(input, param_attr, label=None)",
    """the most likely tags of a linear-chain CRF, (rows, 1) int64, or whether each tag equals the given label.

    `param_attr` names the parameter of `linear_chain_crf`""",
    to="label=Label transition=Transition",
    change=_transition,
    fixed="ViterbiPath",
)


@takes(
    "input, label, num_total_classes, sample_weight=None, param_attr=None, bias_attr=None, num_neg_samples=None, "
    "name=None, sampler='uniform', custom_dist=None, seed=0, is_sparse=False"
)
def nce(given: dict[str, Any]) -> Variable:
    """Return the noise-contrastive estimation cost (rows, 1), divided by the number of samples + 1.

    True classes are compared with sampled classes. The weight has the shape (classes, width), the bias (classes, 1).
    `custom_dist` is the sampling probability of each class.
    """
    helper = LayerHelper("nce", **renamed(given, "name bias_attr"))
    classes, sampler, custom_dist = (given[each] for each in ("num_total_classes", "sampler", "custom_dist"))
    drawn = 10 if given["num_neg_samples"] is None else given["num_neg_samples"]
    if sampler not in _SAMPLERS or (sampler == "custom_dist") != (custom_dist is not None):
        raise FluidError(
            f"nce: sampler: expected one of {', '.join(_SAMPLERS)}, and the argument custom_dist "
            f"only with 'custom_dist'; got {sampler!r} with custom_dist={custom_dist!r:.40}"
        )
    inputs = renamed(given, "Input=input Label=label SampleWeight=sample_weight")
    x = given["input"]
    inputs["Weight"] = helper.create_parameter(given["param_attr"], (classes, x.shape[1]), x.dtype)
    inputs["Bias"] = helper.bias((classes, 1), x.dtype)
    if custom_dist is not None:
        chances = np.asarray(custom_dist, "float32")
        attr = ParamAttr(initializer=NumpyArrayInitializer(chances), trainable=False)
        inputs["CustomDistProbs"] = helper.create_parameter(attr, chances.shape, "float32")
    own = {"num_neg_samples": drawn, "sampler": _SAMPLERS[sampler]}
    cost = helper.apply("nce", inputs, {**renamed(given, "num_total_classes seed is_sparse"), **own})
    return helper.apply("scale", {"X": cost}, {"scale": 1.0 / (drawn + 1)})


def _nodes(given: Mapping[str, Any]) -> int:
    nodes: int = given["num_classes"] - (not given["is_custom"])
    return nodes


def _path(given: Mapping[str, Any]) -> dict[str, Any]:
    if any(given["is_custom"] != (given[each] is not None) for each in ("path_table", "path_code")):
        raise FluidError(
            "hsigmoid: give path_table and path_code with is_custom=True, and omit both otherwise"
        )
    return {}


hsigmoid = layer(
    "hsigmoid(input, label, num_classes, param_attr=None, bias_attr=None, name=None, path_table=None, path_code=None, "
    "is_custom=False, is_sparse=False)",
    """the hierarchical sigmoid cost (rows, 1): the cross entropy of a class's path in a binary tree of classes.

    The default tree has num_classes - 1 nodes. A custom tree has num_classes, and needs path_table and path_code""",
    "hierarchical_sigmoid",
    to="is_custom=",
    learnt={
        "W": lambda given: (_nodes(given), given["input"].shape[1]),
        "Bias": lambda given: (_nodes(given), 1),
    },
    change=_path,
)


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Return the cross entropy (rows, 1) of a sampled softmax: over the true classes and `num_samples` sampled ones.

    Args:
        logits: (rows, classes).
        label: (rows, num_true) classes.
        num_samples: number of sampled classes, which all rows share; classes with lower indexes are more likely.
        num_true: number of true classes per row.
        remove_accidental_hits: whether to omit sampled classes that are true classes of the row.
        use_customized_samples: whether to use `customized_samples` instead of sampling.
        customized_samples: (rows, num_true + num_samples).
        customized_probabilities: the probabilities of these samples, of the same shape.
        seed: seed of the samples; 0 means the program's.

    Raises:
        FluidError: use_customized_samples and the two customized arguments are not given together.
    """
    given = (customized_samples is not None, customized_probabilities is not None)
    if given != (use_customized_samples,) * 2:
        raise FluidError(
            "sampled_softmax_with_cross_entropy: give customized_samples and customized_probabilities with "
            "use_customized_samples=True, and omit both otherwise"
        )
    helper = LayerHelper("sample_logits")
    inputs = {
        "Logits": logits,
        "Labels": label,
        "CustomizedSamples": customized_samples,
        "CustomizedProbabilities": customized_probabilities,
    }
    attrs = {
        "num_samples": num_samples,
        "remove_accidental_hits": remove_accidental_hits,
        "use_customized_samples": use_customized_samples,
        "seed": seed,
    }
    scores, places = helper.apply_all("sample_logits", inputs, attrs, fixed=["SampledLabels"])
    target = places if num_true == 1 else _shared_evenly(helper, places, num_true, num_true + num_samples)
    costs = {"Logits": scores, "Label": target}
    return helper.apply("softmax_with_cross_entropy", costs, {"soft_label": num_true > 1})


def _shared_evenly(helper: LayerHelper, places: Variable, num_true: int, classes: int) -> Variable:
    """Return target probabilities (rows, classes): each true class of a row (rows, num_true) gets an equal share."""
    apart = helper.apply("reshape", {"X": places}, {"shape": (-1, num_true, 1)})
    hot = helper.apply("one_hot", {"X": apart}, {"depth": classes}, stop_gradient=True)
    total = helper.apply("reduce_sum", {"X": hot}, {"dim": [1]})
    return helper.apply("scale", {"X": total}, {"scale": 1.0 / num_true}, stop_gradient=True)


warpctc = layer(
    "warpctc(input, label, blank=0, norm_by_times=False, use_cudnn=False)",
    "the cost (sequences, 1) of unaligned labels, by softmax over (rows, classes); with "
    "norm_by_times, gradients are divided by the length of their sequence",
    to="use_cudnn=",
)


ctc_greedy_decoder = layer(
    "ctc_greedy_decoder(input, blank, name=None)",
    "sequences decoded greedily from CTC outputs: the best class of each row, without repetitions and blanks",
    "ctc_align",
    prefix="ctc_greedy_decoder",
    change=lambda given: {"input": topk(given["input"], k=1)[1]},
    fixed="Output",
)
