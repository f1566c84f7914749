"""A fingerprint of the rows that a task has written, the same in whatever order they come.

Each row becomes a CRC-32C over its topic, partition, key, value and headers; the fingerprint is the sum of
those numbers and the sum of their squares. It tells rows of another task, and rows that a query computes anew
each time, from the ones written before; it is no defence against somebody who tries. Used by ``epoch_task``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import mul
from typing import TYPE_CHECKING

from tidelog.checksum import crc32c
from tidelog.spark.report.content_digest import MASK_64, ContentDigest

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.write._write_columns import Part

_BORDER = b"\x1f"
_NULL = b"\x00 no value \x00"
_HEADER = struct.Struct("<iI")


def digest(part: Part) -> ContentDigest:
    """The digest of the rows of one part."""
    rows, names = part.rows, part.rows.schema.names
    where = f"{part.topic}\x00{'' if part.partition is None else part.partition}".encode()
    seeds: Iterable[int] = repeat(crc32c(where), rows.num_rows)
    if "headers" in names and rows.column("headers").null_count < rows.num_rows:
        seeds = _header_checksums(rows.column("headers"), seeds)
    sums = list(map(crc32c, _contents(rows), seeds))
    return ContentDigest(len(sums), sum(sums) & MASK_64, sum(map(mul, sums, sums)) & MASK_64)


def _contents(rows: pa.RecordBatch) -> Iterator[memoryview]:
    """The bytes of each row: its key and its value, joined by Arrow, which is cheaper than two checksums."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in ("key", "value") if name in rows.schema.names]
    columns = [rows.column(name).cast(pa.binary()) for name in names]
    if len(columns) == 1 and not columns[0].null_count:
        joined = columns[0]
    else:
        joined = pc.binary_join_element_wise(
            *columns, _BORDER, null_handling="replace", null_replacement=_NULL
        )
    if not len(joined):
        return iter(())
    _, ends, data = joined.buffers()
    bounds = memoryview(ends).cast("B").cast("i")[joined.offset : joined.offset + len(joined) + 1].tolist()
    source = memoryview(b"" if data is None else data).cast("B")
    return map(source.__getitem__, map(slice, bounds, bounds[1:]))


def _header_checksums(column: pa.Array, seeds: Iterable[int]) -> list[int]:
    sums = []
    for seed, pairs in zip(seeds, column.to_pylist(), strict=True):
        for pair in pairs or ():
            name, value = pair["key"].encode(), pair["value"]
            length = -1 if value is None else len(value)
            seed = crc32c(value or b"", crc32c(name, crc32c(_HEADER.pack(length, len(name)), seed)))
        sums.append(seed)
    return sums
