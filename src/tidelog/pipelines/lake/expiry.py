"""Expiry: old snapshots are forgotten, and files that belong to no snapshot any more are removed.

Such files are of three kinds: of tasks, batches and commits that came to nothing, data files that were
replaced by compaction or a backfill, and metadata of snapshots that are gone. All go by one rule: none of
the snapshots names it, and it was not touched for a grace time, within which a batch under way may still
commit what it has written and a reader may still read what it has planned. Files are looked for first and
snapshots read afterwards, so that what is committed meanwhile is found to be needed. Only on file systems:
in object stores snapshots expire, and files stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipelines.lake.catalog import table_files
from tidelog.pipelines.lake.data_files import local_path
from tidelog.pipelines.lake.form import LakeError
from tidelog.pipelines.lake.snapshots import ATTEMPTS, drop_snapshots, look_again

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

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


def expire(
    table: Table, rule: ExpiryRule, *, dry_run: bool, on_file: Callable[[Path], None] = lambda _: None
) -> Expired:
    """Expire snapshots and remove files; ``on_file`` hears of each file."""
    now_s = time.time()
    dropped = _old(table, rule, now_s)
    if not dry_run:
        for _ in range(ATTEMPTS):
            if not dropped or drop_snapshots(table, [each.snapshot_id for each in dropped]):
                break
            dropped = _old(table, rule, now_s)
        else:
            raise LakeError(f"table {table.name()[-1]} is changed by others all the time: try again")
    found = [(path, size) for path, size, touched_s in _files(table) if touched_s <= now_s - rule.grace_s]
    table.refresh()
    needed = _needed(table, {each.snapshot_id for each in dropped} if dry_run else set())
    unneeded = [(path, size) for path, size in found if path not in needed]
    for path, _ in unneeded:
        if not dry_run:
            path.unlink(missing_ok=True)
        on_file(path)
    return Expired(table.name()[-1], len(dropped), len(unneeded), sum(size for _, size in unneeded))


def _old(table: Table, rule: ExpiryRule, now_s: float) -> list[Snapshot]:
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    by_age = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    before_ms = (now_s - rule.older_than_s) * 1000
    return [
        snapshot
        for snapshot in by_age[: max(0, len(by_age) - rule.keep)]
        if snapshot.timestamp_ms <= before_ms and snapshot.snapshot_id not in named
    ]


def _files(table: Table) -> Iterator[tuple[Path, int, float]]:
    """The files in the table's directories: path, size, when they were touched."""
    for location in (table_files(table).location, f"{table.location()}/metadata"):
        directory = local_path(location)
        for path in directory.rglob("*") if directory is not None else ():
            if path.suffix not in _OURS:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # a commit tidies up, too
                continue
            yield path, status.st_size, status.st_mtime


def _needed(table: Table, gone: Collection[int]) -> set[Path]:
    """All files that snapshots but those name, and the table's metadata."""
    for _ in range(ATTEMPTS):
        try:
            return _named(table, [each for each in table.snapshots() if each.snapshot_id not in gone])
        except FileNotFoundError as failure:
            # A commit has dropped a snapshot with its manifests: what the others name is what counts.
            look_again(table, failure)
    raise LakeError(f"table {table.name()[-1]} is changed by others all the time: try again")


def _named(table: Table, snapshots: Iterable[Snapshot]) -> set[Path]:
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
    return {path for location in locations if (path := local_path(location)) is not None}
