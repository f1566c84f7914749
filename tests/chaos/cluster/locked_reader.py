"""A reader of librdkafka that reads no more, as two of its threads wait for each other: told by its trace.

After a change of leader it asks the new one with OffsetForLeaderEpoch. If that broker leaves the metadata
before it has answered, librdkafka (2.16) ends its thread for it, and the request fails in its main thread.
That one holds the partition's lock then and wants the client's, the other one the reverse (its issue 5476;
``gdb`` showed both). From that failure on the main thread says nothing, and nothing is fetched any more,
whatever brokers do.

Such a reader is started again, as its users have to. One whose main thread still speaks stays a finding.
"""

from __future__ import annotations

import re
import time

TRACE = {"debug": "broker,cgrp,metadata,fetch", "log_level": 7}
"""Options of a reader that make it tell."""
_SILENT_S = 20.0
_MAIN = "[thrd:main]: "
_LAST_WORDS = re.compile(
    r"%\d\|(?P<time_s>\d+\.\d+)\|REQERR\|.*: OffsetForLeaderEpochRequest failed: .*Broker handle destroyed"
)


def is_locked(trace: str, *, now_s: float | None = None) -> bool:
    """Whether the main thread of a reader has ended with that failure, some time ago."""
    before, _, rest = trace.rpartition(_MAIN)
    last = before.rpartition("\n")[2] + _MAIN + rest.partition("\n")[0]
    failed = _LAST_WORDS.match(last)
    if failed is None:
        return False
    return (time.time() if now_s is None else now_s) - float(failed["time_s"]) >= _SILENT_S
