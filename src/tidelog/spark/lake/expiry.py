"""Expiry: old snapshots are forgotten, and files that belong to no snapshot any more are removed.

Such files are of three kinds: of tasks, batches and commits that came to nothing, data files that were
replaced by compaction or a backfill, and metadata of snapshots that are gone. All go by one rule: none of
the snapshots names it, and it was not touched for a grace time, within which a batch under way may still
commit what it has written and a reader may still read what it has planned. Files are looked for first and
snapshots read afterwards, so that what is committed meanwhile is found to be needed.

A file that is replaced is touched, which an object store has no way to do. So what nobody needs there is
noted when it is first found, and goes when a later run finds it again and the grace time has passed:

    <lake>/unneeded/<table>.json    {location: when it was first found, in seconds since 1970}
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.spark.lake.catalog import table_files
from tidelog.spark.lake.data_files import local_path
from tidelog.spark.lake.lake_note import LakeError, first_line
from tidelog.spark.lake.snapshots import ATTEMPTS, drop_snapshots, look_again

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

NOTES = "unneeded"
_OURS = (".parquet", ".avro", ".json", ".puffin", ".gz")


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What may go."""

    older_than_s: float
    """Snapshots that are older."""
    keep: int
    """So many of the newest snapshots stay, however old."""
    grace_s: float
    """Files without a snapshot that were not touched for so long."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What went, or would go."""

    table: str
    snapshots: int
    files: int
    bytes: int


class _Found(NamedTuple):
    """A file in the table's directories."""

    location: str
    """A path, or the URI that manifests have."""
    size_bytes: int
    touched_s: float


def expire(
    table: Table,
    rule: ExpiryRule,
    lake: Path,
    *,
    dry_run: bool,
    on_file: Callable[[str], None] = lambda _: None,
) -> Expired:
    """Expire snapshots and remove files; ``lake`` is the lake's directory, ``on_file`` hears of each file.

    :raises LakeError: some files could not be removed; the others are.
    """
    now_s = time.time()
    dropped = _old(table, rule, now_s)
    if not dry_run:
        for _ in range(ATTEMPTS):
            if not dropped or drop_snapshots(table, [each.snapshot_id for each in dropped]):
                break
            dropped = _old(table, rule, now_s)
        else:
            raise LakeError(f"table {table.name()[-1]} is changed by others all the time: try again")
    found = [each for each in _files(table) if each.touched_s <= now_s - rule.grace_s]
    table.refresh()
    needed = _needed(table, {each.snapshot_id for each in dropped} if dry_run else set())
    unneeded = [each for each in found if _name(each.location) not in needed]
    notes = _Notes(lake / NOTES / f"{table.name()[-1]}.json")
    going = notes.seen_before(unneeded, now_s, now_s - rule.grace_s)
    gone: list[_Found] = []
    failures: list[OSError] = []
    for each in going:
        try:
            if not dry_run:
                _remove(table, each.location)
        except OSError as failure:
            failures.append(failure)
            continue
        gone.append(each)
        on_file(each.location)
    if not dry_run:
        notes.write(gone={each.location for each in gone})
    if failures:
        raise LakeError(
            f"{len(failures)} of {len(going)} files of table {table.name()[-1]} could not be removed: "
            f"{first_line(failures[0])}; whoever runs this needs the right to delete where they are"
        ) from failures[0]
    return Expired(table.name()[-1], len(dropped), len(gone), sum(each.size_bytes for each in gone))


class _Notes:
    """Since when files in an object store are known to be unneeded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._before = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
        except FileNotFoundError:
            self._before = {}
        except DECODE_ERRORS as error:
            raise LakeError(
                f"{path} cannot be read: {error}; remove it, and the grace time begins anew"
            ) from error
        self._now: dict[str, float] = {}

    def seen_before(self, unneeded: Iterable[_Found], now_s: float, until_s: float) -> list[_Found]:
        """The files that may go: those of a file system, and those that were found by ``until_s``."""
        going = []
        for each in unneeded:
            if local_path(each.location) is not None:
                going.append(each)
                continue
            since_s = self._now[each.location] = self._before.get(each.location, now_s)
            if since_s <= until_s:
                going.append(each)
        return going

    def write(self, gone: Collection[str]) -> None:
        """Remember what is still there."""
        kept = {location: since_s for location, since_s in self._now.items() if location not in gone}
        if kept == self._before:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_suffix(".unfinished")
            unfinished.write_bytes(msgspec.json.encode(kept))
            unfinished.replace(self._path)
        except OSError as failure:
            raise LakeError(f"{self._path} cannot be written: {failure}") from failure


def _remove(table: Table, location: str) -> None:
    path = local_path(location)
    if path is None:
        with suppress(FileNotFoundError):
            table.io.delete(location)
    else:
        path.unlink(missing_ok=True)


def _old(table: Table, rule: ExpiryRule, now_s: float) -> list[Snapshot]:
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    by_age = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    before_ms = (now_s - rule.older_than_s) * 1000
    return [
        snapshot
        for snapshot in by_age[: max(0, len(by_age) - rule.keep)]
        if snapshot.timestamp_ms <= before_ms and snapshot.snapshot_id not in named
    ]


def _files(table: Table) -> Iterator[_Found]:
    """The files in the table's directories."""
    for location in (table_files(table).location, f"{table.location()}/metadata"):
        directory = local_path(location)
        found = _objects(table, location) if directory is None else _files_below(directory)
        yield from (each for each in found if each.location.endswith(_OURS))


def _files_below(directory: Path) -> Iterator[_Found]:
    for path in directory.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # a commit tidies up, too
            continue
        yield _Found(str(path), status.st_size, status.st_mtime)


def _objects(table: Table, location: str) -> Iterator[_Found]:
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(dict(table.io.properties))
    scheme, netloc, path = io.parse_location(location, io.properties)
    selector = FileSelector(path, allow_not_found=True, recursive=True)
    for each in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if each.type == FileType.File:
            below = each.path[len(path.rstrip("/")) :]
            yield _Found(location.rstrip("/") + below, each.size or 0, each.mtime.timestamp())


def _needed(table: Table, gone: Collection[int]) -> set[str]:
    """All files that snapshots but those name, and the table's metadata."""
    for _ in range(ATTEMPTS):
        try:
            return _named(table, [each for each in table.snapshots() if each.snapshot_id not in gone])
        except FileNotFoundError as failure:
            # A commit has dropped a snapshot with its manifests: what the others name is what counts.
            look_again(table, failure)
    raise LakeError(f"table {table.name()[-1]} is changed by others all the time: try again")


def _named(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    metadata = table.metadata
    locations = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    locations |= {each.statistics_path for each in metadata.statistics}
    locations |= {each.statistics_path for each in metadata.partition_statistics}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        locations.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    locations |= manifests.keys()
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        locations |= {entry.data_file.file_path for entry in entries}
    return {_name(location) for location in locations}


def _name(location: str) -> str:
    """The same for all ways to write a location: engines call a store ``s3`` or ``s3a``."""
    path = local_path(location)
    if path is not None:
        return str(path)
    _, _, rest = location.partition("://")
    return re.sub("/+", "/", rest)
