# SPDX-License-Identifier: Apache-2.0
"""The verbs of the wire, with one record each: the contents of a message besides its arrays; `codec` encodes it.

The length of a record depends on its verb; its fields follow each other without gaps:

    CHUNK      | number Q |
    PUSH_PULL  | num_samples Q | chunks Q | in_place ? | wants_values ? | asked Q | rows_as Q |
                                                                             Q: 8 bytes, little-endian, from 0 on
    STATUS     | chunk q |                                                     q: the same, from -1 on
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
    """The type of a request, or of an answer (64 and above)."""

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
    """Checks that the server answers."""


class Hello(NamedTuple):
    """Opens a session. `takes_over`: the trainer's earlier process is known to be dead, even if no server noticed."""

    num_trainers: int = ANY_NUMBER
    takes_over: bool = False


class Configure(NamedTuple):
    """Describes the model. `first_comes`: the first trainer to connect provides the values, whatever its id."""

    first_comes: bool = False


class SetValues(NamedTuple):
    """Sets values, starting at element or row `start`."""

    start: int = 0


class Ready(NamedTuple):
    """Declares that all values are set."""


class StartPass(NamedTuple):
    """Waits until every trainer starts a pass."""


class FinishPass(NamedTuple):
    """Waits until every trainer has reached the end of its data."""


class PushPull(NamedTuple):
    """Sends the gradients of one batch, and requests the values at the end of that batch.

    Attributes:
        num_samples: number of samples in the trainer's batch.
        chunks: number of CHUNK messages that follow with the dense gradient; 0: the gradient is in this message, or in
            place.
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
    """Requests dense values.

    Attributes:
        start, length: range of elements; `length` 0: all elements.
        in_place: whether to request, instead of the values, their location in memory that both ends share.
    """

    start: int = 0
    length: int = 0
    in_place: bool = False


class PullTable(NamedTuple):
    """Requests `length` rows of a table, starting at row `start`."""

    start: int = 0
    length: int = 0


class PullRows(NamedTuple):
    """Requests rows by their ids.

    Attributes:
        is_small: whether the client knows that the rows fit into one packet of the local transport.
        rows_as: dtype of the rows on the wire: an index into `half.WIRE_DTYPES`.
    """

    is_small: bool = False
    rows_as: int = 0


class Status(NamedTuple):
    """Asks why a request, or the given chunk of it, has not been answered."""

    chunk: int = WHOLE


class Leave(NamedTuple):
    """Declares that no trainer needs to wait for this one any more."""


class Chunk(NamedTuple):
    """Part `number` of a push in progress or, without an array, a request for that part of the values."""

    number: int = 0


class Attach(NamedTuple):
    """Offers the server memory of `size` elements to share."""

    size: int = 0


class Step(NamedTuple):
    """Sends gradients of a program's step and, with the last of them, requests values.

    `is_last`: no more gradients follow; `is_first`: the gradients of an earlier unfinished step are discarded.
    """

    is_last: bool = True
    is_first: bool = False


class Begin(NamedTuple):
    """Sends the values that trainer 0 set before its first step; asks which these are. `is_last`: no more follow."""

    is_last: bool = True


class Fetch(NamedTuple):
    """Requests variables of a program."""


class Lookup(NamedTuple):
    """Requests rows of variables."""


class Save(NamedTuple):
    """Requests that a server save a table to a file."""


class Describe(NamedTuple):
    """A reader's request for the model or, with `is_brief`, only for the version."""

    is_brief: bool = False


class View(NamedTuple):
    """A reader's request for the part at `start`, as of batch `version`; `start` 0 begins a new snapshot."""

    start: int = 0
    version: int = 0


class Walk(NamedTuple):
    """A reader's request for rows of a growing table.

    Attributes:
        segment, first: the position; see `sparse.walk.Cursor`.
        since: return only rows that changed after this batch of the table; -1: all rows.
        with_states: also return the update rule's state of each row.
    """

    segment: int = 0
    first: int = 0
    since: int = -1
    with_states: bool = False


class SetRows(NamedTuple):
    """Sets rows of a growing table before training starts."""


class Shrink(NamedTuple):
    """Drops rows with low scores once all trainers have requested it; one section (1,) float32 per growing table."""


class OpenStream(NamedTuple):
    """Requests a stream in addition to the connection."""


class Ask(NamedTuple):
    """Sends a question to the job's task queue, in JSON, as is the answer; needs no session: see `reader.tasks`."""

    client: int = 0


class Ok(NamedTuple):
    """Reports success.

    Attributes:
        version: number of batches applied, if the verb concerns values.
        passes: number of finished passes.
        slab: number of the shared slab with the values, or NO_SLAB.
    """

    version: int = 0
    passes: int = 0
    slab: int = NO_SLAB


class Walked(NamedTuple):
    """The answer to a WALK.

    Attributes:
        clock: number of batches of the table so far.
        since: the `since` that was used; -1: the answer is about all rows.
        segment, first: the position at which the next WALK starts.
    """

    clock: int = 0
    since: int = -1
    segment: int = 0
    first: int = 0


class Error(NamedTuple):
    """Refuses a request. `is_non_finite`: a gradient contains NaN or infinity; nothing was changed."""

    is_non_finite: bool = False


class Waits(NamedTuple):
    """Reports why a request is waiting. `is_idle`: the server waits only for the trainer that sent it."""

    is_idle: bool = False


class StateLost(NamedTuple):
    """Reports that the client's session was with an earlier process of this server, whose state is lost."""


class Repeat(NamedTuple):
    """Reports that part `chunk` of the request, or all of it, was lost."""

    chunk: int = WHOLE


class Values(NamedTuple):
    """Answers part `number` of a push: with the values, or with a plain acknowledgement."""

    number: int = 0


class Configured(NamedTuple):
    """Answers CONFIGURE. If `has_values` is False, the client must set the values."""

    has_values: bool = False


class Invited(NamedTuple):
    """Answers OPEN_STREAM: connect to `port` of the same address, if `own_port` is the port that was asked."""

    port: int = 0
    own_port: int = 0


Record: TypeAlias = (
    Ping | Hello | Configure | SetValues | Ready | StartPass | FinishPass | PushPull | Pull | PullTable | PullRows
    | Status | Leave | Chunk | Attach | Step | Begin | Fetch | Lookup | Save | Describe | View | OpenStream | Ask
    | Walk | SetRows | Shrink | Ok | Error | Waits | StateLost | Repeat | Values | Configured | Invited | Walked
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
