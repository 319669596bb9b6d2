# SPDX-License-Identifier: Apache-2.0
"""DataFeedDesc: describes the slots of MultiSlot files, read from a file in protocol buffers' text format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paddle.fluid.errors import FluidError
from paddle.fluid.multislot.description import parse_description

__all__ = ["DataFeedDesc"]


class DataFeedDesc:
    """A description for `AsyncExecutor.run`; slots are sparse and unused by default.

    Attributes:
        proto_desc: the content of the file.
    """

    def __init__(self, proto_file: str) -> None:
        with open(proto_file, encoding="utf-8") as file:
            self.proto_desc = parse_description(file.read(), str(proto_file))

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples in a batch."""
        if int(batch_size) < 1:
            raise FluidError(f"set_batch_size: expected at least 1, got {batch_size!r}")
        self.proto_desc.batch_size = int(batch_size)

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Make slots dense: they become arrays with the shapes of their variables."""
        wanted = self._known("set_dense_slots", dense_slots_name)
        self.proto_desc.slots = [
            replace(slot, is_dense=slot.is_dense or slot.name in wanted) for slot in self.proto_desc.slots
        ]

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Use slots to fill the variables of the same names; other slots are skipped."""
        wanted = self._known("set_use_slots", use_slots_name)
        self.proto_desc.slots = [
            replace(slot, is_used=slot.is_used or slot.name in wanted) for slot in self.proto_desc.slots
        ]

    def desc(self) -> str:
        """Return the description as text."""
        return str(self.proto_desc)

    def _known(self, method: str, names: Sequence[str]) -> list[str]:
        wanted = [names] if isinstance(names, str) else list(names)
        known = [slot.name for slot in self.proto_desc.slots]
        for name in wanted:
            if name not in known:
                raise FluidError(
                    f"{method}: there is no slot {name!r}; there are {', '.join(known) or 'none'}"
                )
        return wanted
