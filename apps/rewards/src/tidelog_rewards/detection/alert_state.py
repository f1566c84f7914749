"""What a detecting pipeline remembers of its events: rows by key, in files of Arrow, a bucket at a time.

    <checkpoint>/keyed/layout.json            how many buckets there are, and the columns of a row
    <checkpoint>/keyed/<bucket>/<batch>.arrow rows, sorted by key

Rows are put into buckets by their key, so that tasks can work on buckets side by side; how many buckets there
are is settled when a checkpoint is new, and does not depend on cores or executors. The file of a batch holds
the rows that were new in it, and those of older files that it has swallowed; its metadata names the older
files that are still part of the state. A file is written whole, synced, and renamed, and never changed.

Invariant: the state before batch n is what the latest file below n names. So a batch that is replayed finds
the state as it was, whatever a first attempt has left behind, and writes the same rows again. Of the files
that nobody names any more, those go that none of the last three batches named. So a checkpoint may go back by
two batches; one that goes back further is refused, for the latest file that is left may be an older one.

A row goes when its time is over: ``until_us``, a moment of event time, is compared with the watermark. Keys
are hashes of names, 64 bits of BLAKE2b: who looks a key up may be given rows of other names, and compares
names, but first looks are at keys alone, how many different ones there are. People choose names (device ids,
say): with a CRC they made as many of one key as they liked, and passed for one. There is no secret in a key,
so that all who compute one agree; to find two names of one key takes some 2^32 attempts, a third far more.
What is read of a file is its column of keys, mapped into memory and searched, and the rows asked for.

Used in Spark's Python workers by ``alert_tasks``; plain Python and Arrow.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError
from tidelog.spark.runtime.private_directory import make_private

KEY, UNTIL = "key", "until_us"
STATE_COLUMNS = (pa.field(KEY, pa.uint64()), pa.field(UNTIL, pa.int64()))
"""What every row has, before the columns of its pipeline."""

DEFAULT_BUCKETS = 4
_KEY_BYTES = 8
_FRESH = blake2b(digest_size=_KEY_BYTES)
_VERSION = 2
_METADATA = b"tidelog"
_SUFFIX = ".arrow"
_LEFT = ".left"
_KEPT_BATCHES = 3
_SMALL_ROWS = 4096
"""A file of fewer rows is always swallowed by the next."""
_LARGE_ROWS = 250_000
"""A file never becomes larger than this by swallowing others."""

Keys = NDArray[np.uint64]


class StateError(TidelogError):
    """A state that cannot be used; the text names the way out."""


class Layout(msgspec.Struct, frozen=True):
    """How the state of a checkpoint is laid out, from its first batch to its last."""

    buckets: int
    columns: list[str]
    version: int


def key_of(name: str) -> int:
    """The key under which rows of a name are found."""
    return int.from_bytes(_digest(name), sys.byteorder)


def keys_of(names: Iterable[str]) -> pa.Array:
    """The keys of many names."""
    return _as_keys(map(_digest, names))


def pair_keys_of(names: Iterable[str], keys: pa.Array) -> pa.Array:
    """For each name and the key of another one a key of both."""
    salts = (key.to_bytes(_KEY_BYTES, sys.byteorder) for key in keys.to_pylist())
    return _as_keys(map(_salted, names, salts))


def _digest(name: str) -> bytes:
    # A copy takes half the time of a new one, and there are several for each event.
    state = _FRESH.copy()
    state.update(name.encode())
    return state.digest()


def _salted(name: str, salt: bytes) -> bytes:
    return blake2b(name.encode(), digest_size=_KEY_BYTES, salt=salt).digest()


def _as_keys(digests: Iterable[bytes]) -> pa.Array:
    joined = b"".join(digests)
    return pa.Array.from_buffers(pa.uint64(), len(joined) // _KEY_BYTES, [None, pa.py_buffer(joined)])


def buckets_of(keys: pa.Array, buckets: int) -> pa.Array:
    """The bucket of each key; ``buckets`` is a power of two."""
    return pc.bit_wise_and(keys, pa.scalar(buckets - 1, pa.uint64()))


def layout_path(directory: Path) -> Path:
    """The file that says how a state is laid out."""
    return directory / "layout.json"


def open_layout(directory: Path, schema: pa.Schema, buckets: int | None = None) -> Layout:
    """The layout of a state, written down where there is none yet.

    :raises StateError: it has another number of ``buckets``, or is of another version.
    """
    path = layout_path(directory)
    try:
        layout = msgspec.json.decode(path.read_bytes(), type=Layout)
    except FileNotFoundError:
        buckets = buckets or DEFAULT_BUCKETS
        if buckets & (buckets - 1):
            raise StateError(f"{buckets} state partitions: it must be a power of two (1, 2, 4, …)") from None
        layout = Layout(buckets, schema.names, _VERSION)
        make_private(directory)
        write_whole(path, msgspec.json.encode(layout))
    except DECODE_ERRORS as error:
        raise StateError(f"{path} cannot be read ({error}): {WAY_OUT}") from error
    if layout.version != _VERSION or layout.columns != schema.names:
        raise StateError(f"{directory} holds the state of another version of Tidelog: {WAY_OUT}")
    if buckets not in (None, layout.buckets):
        raise StateError(
            f"{directory} has {layout.buckets} state partitions, and {buckets} are asked for: leave "
            f"--state-partitions out, or {WAY_OUT}"
        )
    return layout


WAY_OUT = (
    "move its checkpoint directory away, start with --starting-offsets earliest (alerts have the same keys "
    "again) or latest, and let `tidelog pipeline backfill` look at what lies in between"
)


class _Named(msgspec.Struct, frozen=True):
    """A file that is part of the state."""

    batch: int
    rows: int
    until_us: int
    """When the last of its rows is over."""


class _Contents(msgspec.Struct, frozen=True):
    """What a file says of the state after its batch."""

    older: list[_Named]
    own: _Named
    newest_us: int

    @property
    def batches(self) -> set[int]:
        return {each.batch for each in (*self.older, self.own)}


class _Segment:
    """One file, mapped into memory when it is first looked into."""

    def __init__(self, directory: Path, named: _Named) -> None:
        self.named = named
        self._path = _path(directory, named.batch)

    @cached_property
    def table(self) -> pa.Table:
        with pa.memory_map(str(self._path)) as source:
            return pa.ipc.open_file(source).read_all().replace_schema_metadata(None)

    @cached_property
    def _keys(self) -> Keys:
        keys = self.table[KEY].combine_chunks()
        mapped: Keys = (keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys).to_numpy()
        return mapped

    def held(self, wanted: Keys) -> pa.Array:
        """Of the rows that have one of the keys, the keys, as often as they occur."""
        return pa.array(self._keys[self._places(wanted)])

    def rows_of(self, wanted: Keys, columns: Sequence[str]) -> pa.Table:
        """Some columns of the rows that have one of the keys."""
        return self.table.select(columns).take(pa.array(self._places(wanted)))

    def _places(self, wanted: Keys) -> NDArray[np.int64]:
        """Where the rows are, in their order; the keys are sorted, and each is there once."""
        keys = self._keys
        first = np.searchsorted(keys, wanted)
        is_there = keys.take(first, mode="clip") == wanted
        first, behind = first[is_there], np.searchsorted(keys, wanted[is_there], "right")
        many = behind - first
        return np.repeat(behind - np.cumsum(many), many) + np.arange(many.sum())


class KeyedState:
    """The rows of one bucket, as they are before a batch."""

    def __init__(self, directory: Path, bucket: int, batch_id: int, schema: pa.Schema) -> None:
        self._directory = directory / f"{bucket:04d}"
        self._batch_id = batch_id
        self._schema = schema
        there = _batches(self._directory)
        self._before = [number for number in there if number < batch_id]
        if len(there) - len(self._before) >= _KEPT_BATCHES:
            raise StateError(
                f"{self._directory} knows of batch {there[-1]}, and batch {batch_id} is to be done again, "
                f"but the state before it is not kept: a checkpoint can go back by {_KEPT_BATCHES - 1} "
                f"batches; {WAY_OUT}"
            )
        self.newest_us = 0
        """The time of the newest event that the bucket has seen, no later than its record's timestamp; 0
        before the first."""
        named: list[_Named] = []
        if self._before:
            contents = _contents(_path(self._directory, self._before[-1]))
            self.newest_us = contents.newest_us
            named = [*contents.older, contents.own]
        self._segments = [_Segment(self._directory, each) for each in named if each.rows]

    @property
    def rows(self) -> int:
        """How many rows there are, those included whose time is over."""
        return sum(segment.named.rows for segment in self._segments)

    def held(self, keys: pa.Array) -> list[pa.Array]:
        """The keys of the rows that have one of these, as often as they occur; cheaper than the rows."""
        wanted = _sorted(keys)
        return [segment.held(wanted) for segment in self._segments]

    def rows_of(self, keys: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that have one of the keys; all columns, or some."""
        names = self._schema.names if columns is None else columns
        nothing = self._schema.empty_table().select(names)
        wanted = _sorted(keys)
        return pa.concat_tables([nothing, *(segment.rows_of(wanted, names) for segment in self._segments)])

    def tables(self) -> Iterator[pa.Table]:
        """All rows, a file at a time; for a state that is small."""
        for segment in self._segments:
            yield segment.table

    def commit(
        self, new: pa.Table, watermark_us: int, newest_us: int, replaced: pa.Array | None = None
    ) -> int:
        """Write the state after the batch, forget what is over, and say how many rows are left.

        Of the rows that the new file swallows, those with a key in ``replaced`` go.
        """
        make_private(self._directory)
        alive = [segment for segment in self._segments if segment.named.until_us > watermark_us]
        swallowed: list[pa.Table] = []
        rows = new.num_rows
        while alive:
            last = alive[-1].named.rows
            if last > max(_SMALL_ROWS, 2 * rows) or rows + last > max(_LARGE_ROWS, rows):
                break
            still = _still(alive.pop().table, watermark_us)
            if replaced is not None:
                still = still.filter(pc.invert(pc.is_in(still[KEY], value_set=replaced)))
            swallowed.append(still)
            rows += swallowed[-1].num_rows
        table = pa.concat_tables([*swallowed, new]).sort_by(KEY).combine_chunks()
        own = _Named(self._batch_id, table.num_rows, pc.max(table[UNTIL]).as_py() or 0)
        contents = _Contents([segment.named for segment in alive], own, max(self.newest_us, newest_us))
        _write_table(_path(self._directory, self._batch_id), table, contents)
        self._forget_files(contents)
        return own.rows + sum(each.rows for each in contents.older)

    def leave(self, left: Sequence[bytes]) -> None:
        """Leave something for who looks at all buckets after the batch; :func:`left_behind` finds it."""
        if left:
            write_whole(_path(self._directory, self._batch_id, _LEFT), msgspec.msgpack.encode(left))

    def _forget_files(self, contents: _Contents) -> None:
        recent = self._before[-(_KEPT_BATCHES - 1) :]
        named = contents.batches.union(
            *(_contents(_path(self._directory, number)).batches for number in recent)
        )
        for path in self._directory.iterdir():
            number = int(path.stem)
            has_rows = path.suffix == _SUFFIX
            if number < min(recent, default=0) and not (has_rows and number in named):
                path.unlink(missing_ok=True)


def newest_event_us(directory: Path, buckets: int, batch_id: int) -> int:
    """The time of the newest event before a batch, in any bucket; 0 where there was none."""
    schema = pa.schema(STATE_COLUMNS)
    return max(KeyedState(directory, bucket, batch_id, schema).newest_us for bucket in range(buckets))


class StateReader:
    """The rows of keys of any bucket, as they are *after* a batch; a file is opened once."""

    def __init__(self, directory: Path, buckets: int, batch_id: int, schema: pa.Schema) -> None:
        self._directory, self._buckets = directory, buckets
        self._batch_id, self._schema = batch_id, schema
        self._opened: dict[int, KeyedState] = {}

    def rows_of(self, keys: Iterable[int]) -> pa.Table:
        """All rows that have one of the keys."""
        array = pa.array(sorted(set(keys)), pa.uint64())
        homes = buckets_of(array, self._buckets)
        found = [self._schema.empty_table()]
        for bucket in pc.unique(homes).to_pylist():
            wanted = array.filter(pc.equal(homes, pa.scalar(bucket, pa.uint64())))
            found.append(self._bucket(bucket).rows_of(wanted))
        return pa.concat_tables(found)

    def _bucket(self, bucket: int) -> KeyedState:
        if bucket not in self._opened:
            self._opened[bucket] = KeyedState(self._directory, bucket, self._batch_id + 1, self._schema)
        return self._opened[bucket]


def _sorted(keys: pa.Array) -> Keys:
    """As a search takes them: next to each other in the column, so that it walks through it once."""
    return np.unique(keys.to_numpy(zero_copy_only=False))


def _still(table: pa.Table, watermark_us: int) -> pa.Table:
    return table.filter(pc.greater(table[UNTIL], watermark_us))


def left_behind(directory: Path, buckets: int, batch_id: int) -> list[bytes]:
    """What the buckets have left behind in a batch."""
    left: list[bytes] = []
    for bucket in range(buckets):
        path = _path(directory / f"{bucket:04d}", batch_id, _LEFT)
        if path.exists():
            left += msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
    return left


def _path(directory: Path, batch: int, suffix: str = _SUFFIX) -> Path:
    return directory / f"{batch:012d}{suffix}"


def _batches(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob(f"*{_SUFFIX}"))


def _contents(path: Path) -> _Contents:
    try:
        with pa.memory_map(str(path)) as source:
            metadata = pa.ipc.open_file(source).schema.metadata
        return msgspec.json.decode(metadata[_METADATA], type=_Contents)
    except (pa.ArrowException, *DECODE_ERRORS, KeyError, TypeError) as error:
        raise StateError(f"{path} cannot be read ({error}): {WAY_OUT}") from error


def _write_table(path: Path, table: pa.Table, contents: _Contents) -> None:
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({_METADATA: msgspec.json.encode(contents)})
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.replace_schema_metadata(schema.metadata))
    write_whole(path, sink.getvalue())


def write_whole(path: Path, content: bytes | pa.Buffer) -> None:
    """Replace a file so that a crash leaves the old one or the new one, whoever else writes it meanwhile.

    Only its owner may read it.
    """
    unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
