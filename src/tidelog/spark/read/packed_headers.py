"""Headers of records as bytes: for jobs that hardly ever look at them.

A column of lists costs Spark's JVM some fifteen microseconds a row on its way to Python, even where all of
them are null; a column of bytes next to nothing. The bytes are MsgPack, an array of pairs (name, value), null
for a record without headers. Asked for by the source's option ``headersFormat=packed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.records.record import RecordHeader

_PAIRS = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])


def packed(names: Any, values: Any, ends: Sequence[int]) -> Any:
    """The headers of records: ``names`` and ``values`` of all, and a 0 and where each record's end."""
    if not len(names):
        return pa.nulls(len(ends) - 1, pa.binary())
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    return pa.array(
        [msgspec.msgpack.encode(pairs[start:end]) if end > start else None for start, end in pairwise(ends)],
        pa.binary(),
    )


def unpacked(data: bytes | None) -> list[RecordHeader]:
    """The headers of one record."""
    return [] if data is None else [*_PAIRS.decode(data)]
