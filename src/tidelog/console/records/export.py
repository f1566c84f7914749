"""Found records as a file: JSON objects a line, CSV, or Parquet (with pyarrow). Of any length: lines are sent
as records are found; Parquet, whose index is at its end, is written to a temporary file first.

Decoded fields (Avro, MsgPack …) are the JSON that they were decoded to. Texts are text; bytes that are none
are in base64, which the name of the field says (``value_base64``). Cells of CSV that a spreadsheet would take
for a formula get an apostrophe before them.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tidelog.console.auth.person import Account
from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.raw import RawRecord
from tidelog.console.refusal import Refusal

Lines = Literal["jsonl", "csv"]
Format = Literal["jsonl", "csv", "parquet"]
CONTENT_TYPES: dict[Format, str] = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_PARQUET_FILES = 4
"""At once, of all people; one of each who has logged in."""
_COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def header_line(format_: Lines) -> bytes:
    """What a file begins with."""
    return _csv_line(_COLUMNS) if format_ == "csv" else b""


def lines(records: Iterable[RawRecord], format_: Lines) -> bytes:
    """Records as lines of a file."""
    if format_ == "jsonl":
        return b"".join(msgspec.json.encode(_json(each)) + b"\n" for each in records)
    return b"".join(_csv_line(_cells(each)) for each in records)


class ParquetExportSlots:
    """Room for Parquet files on the console's disk, where each is from its first record until it is sent."""

    def __init__(self) -> None:
        self._taken: Counter[Account | None] = Counter()

    @contextlib.contextmanager
    def take(self, account: Account | None) -> Iterator[None]:
        """Room for a file; raises a refusal while there are as many as may be, of all or of one person."""
        if account is not None and self._taken[account]:
            raise _too_many("one of your Parquet exports is already running")
        if self._taken.total() >= _PARQUET_FILES:
            raise _too_many(f"{_PARQUET_FILES} Parquet exports are already running")
        self._taken[account] += 1
        try:
            yield
        finally:
            self._taken[account] -= 1
            self._taken += Counter()  # who has none is forgotten


def _too_many(what: str) -> Refusal:
    return Refusal(f"{what}: try again later, or choose JSON lines or CSV", 429, "TOO_MANY")


class ParquetFile:
    """A file that grows by batches of records; ``close`` makes it whole."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise Refusal(
                "Parquet requires pyarrow: run `pip install 'tidelog[arrow]'`, or choose another format"
            ) from None
        header = pa.struct([("name", pa.string()), ("value", pa.binary())])
        self._schema = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", "UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
            ]
        )
        self._batch = pa.RecordBatch
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, records: Sequence[RawRecord]) -> None:
        """Append records, as the bytes that they are; decoded fields as JSON."""
        rows = [
            {
                "partition": each.partition,
                "offset": each.offset,
                "timestamp": each.timestamp_ms if each.timestamp_ms >= 0 else None,
                "key": each.readable_key,
                "value": each.readable_value,
                "headers": [{"name": name, "value": value} for name, value in each.headers],
            }
            for each in records
        ]
        self._writer.write_batch(self._batch.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


def _json(record: RawRecord) -> dict[str, object]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_field("key", record.readable_key),
        **_schema("key", record.decoded_key),
        **_field("value", record.readable_value),
        **_schema("value", record.decoded_value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }


def _field(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _schema(name: str, decoded: DecodedField | None) -> dict[str, object]:
    """What the text of a decoded field was made of."""
    if decoded is None or decoded.json is None:
        return {}
    return {
        f"{name}_format": decoded.format,
        **({f"{name}_schema": decoded.schema} if decoded.schema else {}),
    }


def _cells(record: RawRecord) -> list[object]:
    headers = [[name, _cell(value)] for name, value in record.headers]
    return [
        record.partition,
        record.offset,
        record.timestamp_ms,
        _safe(_cell(record.readable_key)),
        _safe(_cell(record.readable_value)),
        msgspec.json.encode(headers).decode(),
    ]


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _csv_line(cells: Sequence[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()
