# SPDX-License-Identifier: Apache-2.0
"""The verbs of the wire, and one record for each: what a message says beside its arrays; `codec` puts it into bytes.

A record is as long as its verb says, its fields follow each other without gaps:

    CHUNK      | number Q |
    PUSH_PULL  | num_samples Q | chunks Q | in_place ? | wants_values ? | asked Q | rows_as Q |
                                                                             Q: 8 bytes, little-endian, from 0 on
    STATUS     | chunk q |                                                     q: the same, from -1 on
    ...        see `LAYOUTS`                                                   ?: 1 byte, 0 or 1

Whoever changes a record, or adds a verb, raises `message.WIRE_VERSION`: both ends must be of one release.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

from paddle_node.contract.classes import NamedTuple

WHOLE = -1
"""`chunk` of a STATUS or a REPEAT that is about a request as a whole."""

NO_SLAB = -1
"""`slab` of an OK whose values, if there are any, travel with it."""

ANY_NUMBER = 0
"""`num_trainers` of a HELLO: whoever asks does not know how many trainers there are."""


class Verb(IntEnum):
    """What a message asks for, or answers (64 and above)."""

    PING = 1
    HELLO = 2
    CONFIGURE = 3
    SET_VALUES = 4
    READY = 5
    START_PASS = 6
    FINISH_PASS = 7
    PUSH_PULL = 8
    PULL = 9
    PULL_TABLE = 10
    PULL_ROWS = 11
    STATUS = 12
    LEAVE = 13
    CHUNK = 14
    ATTACH = 15
    STEP = 16
    FETCH = 17
    LOOKUP = 18
    SAVE = 19
    DESCRIBE = 20
    VIEW = 21
    OPEN_STREAM = 22
    BEGIN = 23
    QUEUE = 24
    WALK = 25
    SET_ROWS = 26
    OK = 64
    ERROR = 65
    WAITING = 66
    STATE_LOST = 67
    REPEAT = 68
    VALUES = 69
    CONFIGURED = 70
    INVITED = 71
    WALKED = 72


class Ping(NamedTuple):
    """Is anybody there?"""


class Hello(NamedTuple):
    """Opens a session. `takes_over`: the trainer's earlier process is known to be dead, even if nobody noticed."""

    num_trainers: int = ANY_NUMBER
    takes_over: bool = False


class Configure(NamedTuple):
    """Describes the model. `first_comes`: the first trainer to connect provides the values, whatever its id."""

    first_comes: bool = False


class SetValues(NamedTuple):
    """Gives values, from element or row `start` on."""

    start: int = 0


class Ready(NamedTuple):
    """All values are there."""


class StartPass(NamedTuple):
    """Waits until every trainer starts a pass."""


class FinishPass(NamedTuple):
    """Waits until every trainer's data is at its end."""


class PushPull(NamedTuple):
    """Gives gradients of one batch, and asks for the values after it.

    Attributes:
        num_samples: in the trainer's batch.
        chunks: how many CHUNK messages follow with the dense gradient; 0: it is here as a whole, or in place.
        in_place: it lies in memory that both ends share, and so will the values.
        wants_values: False: no dense values are to come back. This is the only place that says so.
        asked: so many sections at the end are ids of rows that are to come with the answer, as they are after the step.
        rows_as: how these rows are to travel: a place in `half.WIRE_DTYPES`.
    """

    num_samples: int = 0
    chunks: int = 0
    in_place: bool = False
    wants_values: bool = True
    asked: int = 0
    rows_as: int = 0


class Pull(NamedTuple):
    """Asks for dense values.

    Attributes:
        start, length: elements; `length` 0: all of them.
        in_place: asks instead where they lie in memory that both ends share.
    """

    start: int = 0
    length: int = 0
    in_place: bool = False


class PullTable(NamedTuple):
    """Asks for `length` rows of a table from `start` on."""

    start: int = 0
    length: int = 0


class PullRows(NamedTuple):
    """Asks for rows by their ids.

    Attributes:
        is_small: whoever asks knows that they go in one packet within a node.
        rows_as: how the rows are to travel: a place in `half.WIRE_DTYPES`.
    """

    is_small: bool = False
    rows_as: int = 0


class Status(NamedTuple):
    """Asks why a request, or this chunk of it, has not been answered."""

    chunk: int = WHOLE


class Leave(NamedTuple):
    """Nobody need wait for this trainer any more."""


class Chunk(NamedTuple):
    """Part `number` of a push that is under way; without an array: asks for that part of the values."""

    number: int = 0


class Attach(NamedTuple):
    """Shows memory of `size` elements to share."""

    size: int = 0


class Step(NamedTuple):
    """Gives gradients of a program's step, and if these were the last asks for values.

    `is_last`: nothing follows; `is_first`: what came of an earlier step that never ended counts no more.
    """

    is_last: bool = True
    is_first: bool = False


class Begin(NamedTuple):
    """Gives what trainer 0 set before its first step; asks which values it gave. `is_last`: nothing follows."""

    is_last: bool = True


class Fetch(NamedTuple):
    """Asks for variables of a program."""


class Lookup(NamedTuple):
    """Asks for rows of variables."""


class Save(NamedTuple):
    """Lets a server write a table."""


class Describe(NamedTuple):
    """A reader's question for the model, or with `is_brief` for the version alone."""

    is_brief: bool = False


class View(NamedTuple):
    """A reader's PULL: the part from `start` on, of the moment after batch `version`; from 0 on of a new moment."""

    start: int = 0
    version: int = 0


class Walk(NamedTuple):
    """A reader's question for rows of a growing table.

    Attributes:
        segment, first: the place, see `sparse.walk.Cursor`.
        since: rows that changed after this batch of the table; -1: all.
        with_states: what the rule keeps for each row is wanted too.
    """

    segment: int = 0
    first: int = 0
    since: int = -1
    with_states: bool = False


class SetRows(NamedTuple):
    """Gives rows of a growing table before training begins."""


class OpenStream(NamedTuple):
    """Asks for a stream beside the connection."""


class Ask(NamedTuple):
    """Asks the job's queue of tasks. A question and its answer are JSON; no session is needed, see `reader.tasks`."""

    client: int = 0


class Ok(NamedTuple):
    """It is done.

    Attributes:
        version: batches applied, where the verb has to do with values.
        passes: passes that are over.
        slab: number of the shared slab that has the values, or NO_SLAB.
    """

    version: int = 0
    passes: int = 0
    slab: int = NO_SLAB


class Walked(NamedTuple):
    """The answer to a WALK.

    Attributes:
        clock: batches of the table so far.
        since: as it was possible; -1: the rows are of all there are.
        segment, first: where the next WALK begins.
    """

    clock: int = 0
    since: int = -1
    segment: int = 0
    first: int = 0


class Error(NamedTuple):
    """It is refused. `is_strange`: a gradient is NaN or infinite; nothing was changed, and more may be asked."""

    is_strange: bool = False


class Waits(NamedTuple):
    """Reports what a request waits for. `is_idle`: nothing but its trainer itself keeps it."""

    is_idle: bool = False


class StateLost(NamedTuple):
    """Whoever asks knows another process of this server, and its state is gone."""


class Repeat(NamedTuple):
    """Part `chunk` of the request got lost, or all of it."""

    chunk: int = WHOLE


class Values(NamedTuple):
    """Answers part `number` of a push: with the values, or only that it was taken."""

    number: int = 0


class Configured(NamedTuple):
    """Answers CONFIGURE. `has_values`: False: it is on whoever asked to give them."""

    has_values: bool = False


class Invited(NamedTuple):
    """Answers OPEN_STREAM: connect to `port` of the same address, if `own_port` is the one that you asked at."""

    port: int = 0
    own_port: int = 0


Record: TypeAlias = (
    Ping | Hello | Configure | SetValues | Ready | StartPass | FinishPass | PushPull | Pull | PullTable | PullRows
    | Status | Leave | Chunk | Attach | Step | Begin | Fetch | Lookup | Save | Describe | View | OpenStream | Ask
    | Walk | SetRows | Ok | Error | Waits | StateLost | Repeat | Values | Configured | Invited | Walked
)  # fmt: skip

LAYOUTS: Mapping[Verb, tuple[type[Record], str]] = {
    Verb.PING: (Ping, ""),
    Verb.HELLO: (Hello, "Q?"),
    Verb.CONFIGURE: (Configure, "?"),
    Verb.SET_VALUES: (SetValues, "Q"),
    Verb.READY: (Ready, ""),
    Verb.START_PASS: (StartPass, ""),
    Verb.FINISH_PASS: (FinishPass, ""),
    Verb.PUSH_PULL: (PushPull, "QQ??QQ"),
    Verb.PULL: (Pull, "QQ?"),
    Verb.PULL_TABLE: (PullTable, "QQ"),
    Verb.PULL_ROWS: (PullRows, "?Q"),
    Verb.STATUS: (Status, "q"),
    Verb.LEAVE: (Leave, ""),
    Verb.CHUNK: (Chunk, "Q"),
    Verb.ATTACH: (Attach, "Q"),
    Verb.STEP: (Step, "??"),
    Verb.BEGIN: (Begin, "?"),
    Verb.FETCH: (Fetch, ""),
    Verb.LOOKUP: (Lookup, ""),
    Verb.SAVE: (Save, ""),
    Verb.DESCRIBE: (Describe, "?"),
    Verb.VIEW: (View, "QQ"),
    Verb.OPEN_STREAM: (OpenStream, ""),
    Verb.QUEUE: (Ask, "Q"),
    Verb.WALK: (Walk, "QQq?"),
    Verb.SET_ROWS: (SetRows, ""),
    Verb.OK: (Ok, "QQq"),
    Verb.ERROR: (Error, "?"),
    Verb.WAITING: (Waits, "?"),
    Verb.STATE_LOST: (StateLost, ""),
    Verb.REPEAT: (Repeat, "q"),
    Verb.VALUES: (Values, "Q"),
    Verb.CONFIGURED: (Configured, "?"),
    Verb.INVITED: (Invited, "QQ"),
    Verb.WALKED: (Walked, "QqQQ"),
}
"""Verb -> its record, and how the fields of that travel."""

VERBS: Mapping[type, Verb] = {kind: verb for verb, (kind, _) in LAYOUTS.items()}
