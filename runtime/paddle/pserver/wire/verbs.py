# SPDX-License-Identifier: Apache-2.0
"""The message types (verbs) of the wire protocol, with one record each for the contents other than arrays.

The length of a record depends on its verb; its fields follow each other without gaps:

    CHUNK      | number Q |
    PUSH_PULL  | num_samples Q | chunks Q | in_place ? | wants_values ? | asked Q | rows_as Q |
                                                                             Q: 8 bytes, little-endian, 0 or more
    STATUS     | chunk q |                                                     q: the same, or -1
    ...        see `LAYOUTS`                                                   ?: 1 byte, 0 or 1

To change a record or add a verb, increase `message.WIRE_VERSION`: both ends must be of one release.
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
"""`num_trainers` of a HELLO whose sender does not know the number of trainers."""


class Verb(IntEnum):
    """The type of a message: a request or, at 64 and above, an answer."""

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
    SHRINK = 27
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
    """PING: asks whether the server responds."""


class Hello(NamedTuple):
    """HELLO: opens a trainer's session, or repeats that it is open.

    Attributes:
        takes_over: whether this process replaces one that has ended.
        number, listed: the server's number in the trainer's list, and the length of that list; 0 and 0 if not given.
    """

    num_trainers: int = ANY_NUMBER
    takes_over: bool = False
    number: int = 0
    listed: int = 0


class Configure(NamedTuple):
    """CONFIGURE: describes the model.

    With `first_comes`, the first trainer to connect provides the values, instead of trainer 0.
    """

    first_comes: bool = False


class SetValues(NamedTuple):
    """SET_VALUES: sets dense values or rows, beginning with element or row `start`."""

    start: int = 0


class Ready(NamedTuple):
    """READY: declares that all initial values are set."""


class StartPass(NamedTuple):
    """START_PASS: waits until every trainer starts a pass."""


class FinishPass(NamedTuple):
    """FINISH_PASS: waits until every trainer has processed all its data."""


class PushPull(NamedTuple):
    """PUSH_PULL: sends the gradients of one batch, and requests the values at the end of that batch.

    Attributes:
        num_samples: number of samples in the trainer's batch.
        chunks: number of CHUNK messages that follow with the dense gradient; 0 means the gradient is in this message,
            or in place.
        in_place: whether the gradient is, and the values will be, in memory that both ends share.
        wants_values: whether dense values are returned; no other field affects this.
        asked: number of sections at the end with row ids; the answer returns these rows as of the end of the step.
        rows_as: dtype of these rows on the wire: an index into `half.WIRE_DTYPES`.
    """

    num_samples: int = 0
    chunks: int = 0
    in_place: bool = False
    wants_values: bool = True
    asked: int = 0
    rows_as: int = 0


class Pull(NamedTuple):
    """PULL: requests dense values.

    Attributes:
        start, length: range of elements; `length` is 0 for all.
        in_place: whether to request, instead of the values, their location in memory that both ends share.
    """

    start: int = 0
    length: int = 0
    in_place: bool = False


class PullTable(NamedTuple):
    """PULL_TABLE: requests `length` rows of a sparse parameter, beginning with position `start` on the server."""

    start: int = 0
    length: int = 0


class PullRows(NamedTuple):
    """PULL_ROWS: requests rows of sparse parameters by their ids.

    Attributes:
        is_small: whether the client knows that the rows fit into one packet of the local transport.
        rows_as: dtype of the rows on the wire: an index into `half.WIRE_DTYPES`.
    """

    is_small: bool = False
    rows_as: int = 0


class Status(NamedTuple):
    """STATUS: asks why a request, or chunk `chunk` of it, has not been answered."""

    chunk: int = WHOLE


class Leave(NamedTuple):
    """LEAVE: declares that the trainer has left, so that no other trainer waits for it."""


class Chunk(NamedTuple):
    """CHUNK: carries part `number` of a push in progress; without an array, it requests that part of the values."""

    number: int = 0


class Attach(NamedTuple):
    """ATTACH: offers the server memory of `size` float32 elements to share."""

    size: int = 0


class Step(NamedTuple):
    """STEP: sends gradients of one step of a program and, with the last of them, requests values.

    `is_last` marks the last gradients of a step; `is_first` discards the gradients of an earlier, unfinished step.
    """

    is_last: bool = True
    is_first: bool = False


class Begin(NamedTuple):
    """BEGIN: sends initial values of a program, and asks for trainer 0's; `is_last` marks the last message."""

    is_last: bool = True


class Fetch(NamedTuple):
    """FETCH: requests variables of a program."""


class Lookup(NamedTuple):
    """LOOKUP: requests rows of a program's variables, by their ids."""


class Save(NamedTuple):
    """SAVE: asks a server to write its rows of a table to a file."""


class Describe(NamedTuple):
    """DESCRIBE: a reader's request for the model, or with `is_brief` only for its version."""

    is_brief: bool = False


class View(NamedTuple):
    """VIEW: a reader's request for the part of a snapshot of batch `version` at `start`; 0 begins a new snapshot."""

    start: int = 0
    version: int = 0


class Walk(NamedTuple):
    """WALK: a reader's request for the next rows of a growing table.

    Attributes:
        segment, first: the position; see `sparse.walk.Cursor`.
        since: return only rows that changed after this batch of the table; -1 means all rows.
        with_states: also return the update rule's state of each row.
    """

    segment: int = 0
    first: int = 0
    since: int = -1
    with_states: bool = False


class SetRows(NamedTuple):
    """SET_ROWS: sets rows of a growing table, before training starts."""


class Shrink(NamedTuple):
    """SHRINK: drops rows with low scores once all trainers ask for it; one section (1,) float32 per growing table."""


class OpenStream(NamedTuple):
    """OPEN_STREAM: requests an additional TCP connection for large messages; INVITED answers it."""


class Ask(NamedTuple):
    """QUEUE: sends a question to the job's task queue; both it and the answer are JSON. Needs no session."""

    client: int = 0


class Ok(NamedTuple):
    """OK: reports that a request succeeded.

    Attributes:
        version: number of batches applied, if the verb concerns values.
        passes: number of finished passes.
        slab: number of the shared slab with the values, or NO_SLAB.
    """

    version: int = 0
    passes: int = 0
    slab: int = NO_SLAB


class Walked(NamedTuple):
    """WALKED: answers WALK with rows.

    Attributes:
        clock: number of batches of the table so far.
        since: the `since` that was used; -1 means the answer is about all rows.
        segment, first: the position at which the next WALK starts.
    """

    clock: int = 0
    since: int = -1
    segment: int = 0
    first: int = 0


class Error(NamedTuple):
    """ERROR: refuses a request. `is_non_finite`: a gradient contains NaN or infinity; nothing was changed."""

    is_non_finite: bool = False


class Waits(NamedTuple):
    """WAITING: reports why a request waits. With `is_idle`, the server waits only for the request's sender."""

    is_idle: bool = False


class StateLost(NamedTuple):
    """STATE_LOST: reports that the session belongs to an earlier process of this server, whose state is lost."""


class Repeat(NamedTuple):
    """REPEAT: asks for a lost chunk of the request, or for the whole request."""

    chunk: int = WHOLE


class Values(NamedTuple):
    """VALUES: answers part `number` of a push, with values or as an acknowledgement only."""

    number: int = 0


class Configured(NamedTuple):
    """CONFIGURED: answers CONFIGURE. If `has_values` is False, the client must set the values."""

    has_values: bool = False


class Invited(NamedTuple):
    """INVITED: answers OPEN_STREAM with the port to connect to; `own_port` differs from the client's behind a proxy."""

    port: int = 0
    own_port: int = 0


Record: TypeAlias = (
    Ping | Hello | Configure | SetValues | Ready | StartPass | FinishPass | PushPull | Pull | PullTable | PullRows
    | Status | Leave | Chunk | Attach | Step | Begin | Fetch | Lookup | Save | Describe | View | OpenStream | Ask
    | Walk | SetRows | Shrink | Ok | Error | Waits | StateLost | Repeat | Values | Configured | Invited | Walked
)  # fmt: skip

LAYOUTS: Mapping[Verb, tuple[type[Record], str]] = {
    Verb.PING: (Ping, ""),
    Verb.HELLO: (Hello, "Q?QQ"),
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
    Verb.SHRINK: (Shrink, ""),
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
"""Verb -> its record, and the encoding of its fields."""

VERBS: Mapping[type, Verb] = {kind: verb for verb, (kind, _) in LAYOUTS.items()}
