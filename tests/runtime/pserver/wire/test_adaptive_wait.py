# SPDX-License-Identifier: Apache-2.0
"""When a thread looks for news again and again, and when it sleeps until there are some."""

from __future__ import annotations

import pytest

from paddle.pserver.wire.poller import AdaptiveWait

SPIN_S = 1e-3
NEWS = [(3, 1)]


class Peer:
    """A poll object and a clock: each news comes so many seconds after it was waited for; one look takes `look_s`.

    `is_shy`: what is looked for comes late.
    """

    def __init__(self, look_s: float = 1e-6, *, is_shy: bool = False) -> None:
        self.now, self.look_s, self.is_shy = 0.0, look_s, is_shy
        self.comes_at = 0.0
        self.looks = self.sleeps = 0

    def clock(self) -> float:
        return self.now

    def poll(self, timeout_ms: int, /) -> list[tuple[int, int]]:
        if timeout_ms:
            self.sleeps += 1
            self.now = max(self.now, min(self.comes_at, self.now + timeout_ms / 1000))
        else:
            if self.is_shy and not self.looks:
                self.comes_at += 10 * SPIN_S
            self.looks += 1
            self.now += self.look_s
        return NEWS if self.now >= self.comes_at else []

    def asked(self, patience: AdaptiveWait, after_s: float, timeout_s: float = 1.0) -> tuple[bool, bool]:
        """Wait once; return whether there was looking, and whether there was sleeping."""
        self.looks = self.sleeps = 0
        self.comes_at = self.now + after_s
        assert patience.wait(self, timeout_s) == (NEWS if after_s < timeout_s else [])
        return self.looks > 0, self.sleeps > 0


def experienced(peer: Peer) -> AdaptiveWait:
    """One who looks, since all waits were short."""
    patience = AdaptiveWait(SPIN_S, peer.clock)
    for _ in range(20):
        peer.asked(patience, SPIN_S / 2)
    return patience


def test_after_short_waits_news_are_looked_for_without_sleeping() -> None:
    peer = Peer()
    patience = AdaptiveWait(SPIN_S, peer.clock)
    assert [peer.asked(patience, SPIN_S / 2) for _ in range(2)] == [(False, True)] * 2
    patience = experienced(peer)
    assert [peer.asked(patience, SPIN_S / 2) for _ in range(5)] == [(True, False)] * 5


def test_whoever_looked_in_vain_sleeps_at_once_until_waits_are_short_again() -> None:
    peer = Peer()
    patience = experienced(peer)
    begun = peer.now
    assert peer.asked(patience, 0.5) == (True, True)
    assert peer.looks * peer.look_s <= SPIN_S + peer.look_s
    assert peer.now == begun + 0.5
    assert [peer.asked(patience, 0.5) for _ in range(30)] == [(False, True)] * 30
    assert peer.asked(patience, SPIN_S / 2) == (False, True)


def test_looking_ends_when_somebody_else_takes_the_core() -> None:
    peer = Peer()
    patience = experienced(peer)
    peer.look_s = SPIN_S / 10  # the core came back that late
    assert peer.asked(patience, SPIN_S / 2) == (True, True)
    assert peer.looks == 2


def test_where_looking_is_in_vain_again_and_again_there_is_hardly_any() -> None:
    peer = Peer(look_s=5e-6, is_shy=True)
    patience = AdaptiveWait(SPIN_S, peer.clock)
    looked = [peer.asked(patience, SPIN_S / 2)[0] for _ in range(2000)]
    assert 10 < sum(looked) < 40
    peer.is_shy = False
    for _ in range(100):
        peer.asked(patience, SPIN_S / 2)
    assert peer.asked(patience, SPIN_S / 2) == (True, False)


@pytest.mark.parametrize("spin_s", [0.0, SPIN_S])
def test_a_wait_without_news_ends_in_time(spin_s: float) -> None:
    peer = Peer()
    patience = AdaptiveWait(spin_s, peer.clock)
    for timeout_s in (0.0, 0.002, 2.0):
        begun = peer.now
        peer.asked(patience, 10.0, timeout_s)
        assert timeout_s <= peer.now - begun <= timeout_s + spin_s + 0.001


def test_one_who_never_looks_only_sleeps() -> None:
    peer = Peer()
    patience = AdaptiveWait(0.0, peer.clock)
    assert [peer.asked(patience, SPIN_S / 2) for _ in range(30)] == [(False, True)] * 30
