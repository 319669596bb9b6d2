# SPDX-License-Identifier: Apache-2.0
"""TrainingDecoder and BeamSearchDecoder run one StateCell: over given words, and over the best words so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.contrib import BeamSearchDecoder, InitState, StateCell, TrainingDecoder

WORDS, WIDTH, HIDDEN, END = 7, 4, 6, 1
RNG = np.random.default_rng(11)


def cell_of(first: Any) -> StateCell:
    cell = StateCell({"x": None}, {"h": InitState(init=first, need_reorder=True)}, out_state="h")

    @cell.state_updater
    def update(given: StateCell) -> None:
        parts = [given.get_input("x"), given.get_state("h")]
        attrs = [fluid.ParamAttr("w_x"), fluid.ParamAttr("w_h")]
        given.set_state("h", layers.fc(parts, HIDDEN, act="tanh", param_attr=attrs, bias_attr=False))

    return cell


def run(fetches: list[Any], feed: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    weights = {}
    for each in fluid.default_main_program().global_block().all_parameters():
        weights[each.name] = RNG.normal(0, 1, each.shape).astype("float32")
        fluid.global_scope().set(each.name, weights[each.name])
    return exe.run(feed=feed, fetch_list=fetches, return_numpy=False), weights


def test_training_runs_the_cell_over_the_words_of_each_sequence() -> None:
    first = layers.data("first", [HIDDEN])
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    decoder = TrainingDecoder(cell_of(first))
    vectors = layers.embedding(words, [WORDS, WIDTH], param_attr="table")
    with decoder.block():
        word = decoder.step_input(vectors)
        decoder.state_cell.compute_state(inputs={"x": word})
        decoder.output(decoder.state_cell.out_state())
        decoder.state_cell.update_states()
    loss = layers.mean(decoder())
    pairs = fluid.backward.append_backward(loss)
    assert {each.name for each, _ in pairs} == {"table", "w_x", "w_h"}
    begins = RNG.normal(size=(2, HIDDEN)).astype("float32")
    ids = [[3, 2], [5, 6, 4]]
    feed = {
        "first": begins,
        "words": fluid.create_lod_tensor(np.array([*ids[0], *ids[1]])[:, None], [[2, 3]], fluid.CPUPlace()),
    }
    (found,), weights = run([decoder()], feed)
    expected = []
    for h, sequence in zip(begins, ids, strict=True):
        for each in sequence:
            h = np.tanh(weights["table"][each] @ weights["w_x"] + h @ weights["w_h"])
            expected.append(h)
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-4, atol=1e-6)
    assert found.recursive_sequence_lengths() == [[2, 3]]


def searched(weights: dict[str, Any], h: Any, beams: int, most: int) -> list[tuple[list[int], float]]:
    """Return the best sentences of one source by plain search, the best one first."""
    table, (projection, bias) = weights["embedding_0.w_0"], (weights["fc_1.w_0"], weights["fc_1.b_0"])
    alive, done = [([0], 0.0, h)], []
    for _ in range(most):
        grown = []
        for ids, score, state in alive:
            if ids[-1] == END:
                grown.append((score, ids, state))
                continue
            after = np.tanh(table[ids[-1]] @ weights["w_x"] + state @ weights["w_h"])
            raw = after @ projection + bias
            logs = raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())
            grown += [(score + logs[word], [*ids, word], after) for word in range(WORDS)]
        grown.sort(key=lambda each: -each[0])
        alive = [(ids, score, state) for score, ids, state in grown[:beams]]
        if all(ids[-1] == END for ids, _, _ in alive):
            break
    done = [(ids, score) for ids, score, _ in alive]
    return sorted(done, key=lambda each: -each[1])


@pytest.mark.parametrize("beams", [1, 3])
def test_beam_search_finds_what_a_plain_search_finds(beams: int) -> None:
    first = layers.data("first", [HIDDEN])
    ids = layers.data("ids", [1], dtype="int64", lod_level=2)
    scores = layers.data("scores", [1], dtype="float32", lod_level=2)
    decoder = BeamSearchDecoder(
        cell_of(first), ids, scores, WORDS, WIDTH, {}, topk_size=WORDS, max_len=6, beam_size=beams, end_id=END
    )
    decoder.decode()
    begins = RNG.normal(size=(2, HIDDEN)).astype("float32")
    place, lengths = fluid.CPUPlace(), [[1, 1], [1, 1]]
    feed = {
        "first": begins,
        "ids": fluid.create_lod_tensor(np.zeros((2, 1), "int64"), lengths, place),
        "scores": fluid.create_lod_tensor(np.zeros((2, 1), "float32"), lengths, place),
    }
    (found, found_scores), weights = run(list(decoder()), feed)
    of_sources, of_sentences = found.lod()
    flat, marks = np.array(found)[:, 0], np.array(found_scores)[:, 0]
    for source, h in enumerate(begins):
        best, score = searched(weights, h, beams, 6)[0]
        sentences = range(of_sources[source], of_sources[source + 1])
        parts = [slice(of_sentences[at], of_sentences[at + 1]) for at in sentences]
        got = max(parts, key=lambda each: marks[each][-1])
        assert flat[got].tolist() == best
        np.testing.assert_allclose(marks[got][-1], score, rtol=1e-4)


def test_misuse_of_cells_and_decoders_is_told() -> None:
    first = layers.data("first", [HIDDEN])
    with pytest.raises(ValueError, match="give init, or init_boot and shape"):
        InitState()
    boot = InitState(init_boot=first, shape=[-1, 3], value=2.0)
    assert boot.value.shape == (-1, 3)
    with pytest.raises(ValueError, match="out_state 'g' is not one of h"):
        StateCell({}, {"h": boot}, out_state="g")
    with pytest.raises(ValueError, match="must be an InitState"):
        StateCell({}, {"h": first}, out_state="h")  # type: ignore[dict-item]
    cell = cell_of(first)
    with pytest.raises(ValueError, match="only inside a decoder's block"):
        cell.get_state("h")
    decoder = TrainingDecoder(cell)
    with pytest.raises(ValueError, match="another decoder is using this cell"):
        TrainingDecoder(cell)
    with pytest.raises(ValueError, match="inside its block"):
        decoder.output(first)
    with pytest.raises(ValueError, match="define its block"):
        decoder()
