"""Snapshots of Iceberg tables: one change, written as manifests and committed to the catalog in one step.

PyIceberg's own transactions copy the whole metadata a dozen times for each commit, and on a conflict append
again without asking whether they still should; a stream that commits every few seconds can afford neither.
So manifests are written here, with PyIceberg's writers, and its catalogs commit them; :func:`commit` looks
at the table anew for each attempt and has its caller decide again.

Manifests are merged in levels, as a log-structured tree: sixteen with about as many files become one. So a
commit rewrites few entries however many files there are, and a snapshot has some dozens of manifests. The
newest ``history.expire.min-snapshots-to-keep`` snapshots are kept by commits, once there are twice as many;
what is dropped takes its manifests with it, never a data file. So who has looked at a table some minutes ago
may not find the manifests of then: :func:`commit` looks again. A crash before the catalog's step leaves files
that belong to nothing; ``lake.expiry`` removes them.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidelog.spark.lake.catalog import KEPT_SNAPSHOTS
from tidelog.spark.lake.lake_note import LakeError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, ManifestWriter
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot, Summary

    from tidelog.spark.lake.data_files import WrittenFile

ATTEMPTS = 30
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 2.0
MERGED_MANIFESTS = 16
MAIN = "main"
KEPT_SNAPSHOTS_PROPERTY = "history.expire.min-snapshots-to-keep"
_CODEC: Literal["deflate"] = "deflate"

logger = logging.getLogger(__name__)


class FilesGoneError(LakeError):
    """Files that a change was to replace are not in the table any more, or not with all of their rows."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a snapshot does to a table."""

    operation: Literal["append", "overwrite", "replace"]
    added: Sequence[DataFile] = ()
    removed: frozenset[str] = frozenset()
    """Paths of data files."""
    summary: Mapping[str, str] = field(default_factory=dict)
    """What it tells of itself beside its counts."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the table that are set with it."""


def data_file(written: WrittenFile, table: Table) -> DataFile:
    """A file that a task has written, as manifests have it."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(written.day),
        record_count=written.rows,
        file_size_in_bytes=written.size_bytes,
        column_sizes=written.column_sizes,
        value_counts=written.value_counts,
        null_value_counts=written.null_counts,
        nan_value_counts={},
        lower_bounds=written.lower_bounds,
        upper_bounds=written.upper_bounds,
        split_offsets=written.split_offsets,
        key_metadata=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
    )


def live_entries(table: Table) -> Iterator[ManifestEntry]:
    """The data files of a table as it is now, with what manifests say of them."""
    from pyiceberg.manifest import ManifestContent

    head = table.current_snapshot()
    for manifest in head.manifests(table.io) if head is not None else ():
        if manifest.content == ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def delete_manifests(table: Table) -> frozenset[str]:
    """The manifests of a table as it is here that name rows which another engine has deleted."""
    from pyiceberg.manifest import ManifestContent

    head = table.current_snapshot()
    manifests = head.manifests(table.io) if head is not None else []
    return frozenset(each.manifest_path for each in manifests if each.content == ManifestContent.DELETES)


def commit(table: Table, decide: Callable[[Table], Change | None]) -> bool:
    """Commit what ``decide`` makes of the table as it is; others may commit at the same time.

    ``decide`` is asked again whenever somebody was quicker, or when it is not known whether a commit took
    place; None ends it. Returns whether there was a change.

    :raises LakeError: others were quicker all the time, or the table names a manifest that is not there.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServerError
    from sqlalchemy.exc import OperationalError

    tried: list[int] = []
    wait_s = FIRST_WAIT_S
    last: Exception | None = None
    for _ in range(ATTEMPTS):
        if last is not None:
            time.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            look_again(table, last)
            if any(table.snapshot_by_id(each) is not None for each in tried):
                return True  # of which we were not told
        try:
            change = decide(table)
        except FileNotFoundError as error:
            last = error
            continue
        if change is None:
            return False
        attempt = _Attempt(table, change)
        tried.append(attempt.snapshot_id)
        try:
            attempt.commit()
        except (CommitFailedException, FileNotFoundError) as error:
            attempt.undo()
            last = error
        except (CommitStateUnknownException, ServerError, OperationalError, ConnectionError) as error:
            last = error
        else:
            return True
    raise LakeError(
        f"table {table.name()[-1]} of the lake could not be changed in {ATTEMPTS} attempts: {last}"
    ) from last


def look_again(table: Table, why: Exception) -> None:
    """Look at a table anew, since somebody has changed it meanwhile.

    :raises LakeError: nobody has, and a file was not found that it names.
    """
    before = table.metadata_location
    table.refresh()
    if isinstance(why, FileNotFoundError) and table.metadata_location == before:
        raise LakeError(
            f"table {table.name()[-1]} of the lake names a file that is not there: {why}; restore it from a "
            "copy"
        ) from why


def drop_snapshots(table: Table, snapshot_ids: Iterable[int]) -> bool:
    """Have a table forget snapshots; files stay. Returns False where somebody else was quicker."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import RemoveSnapshotsUpdate

    try:
        _commit_updates(table, (RemoveSnapshotsUpdate(snapshot_ids=list(snapshot_ids)),))
    except CommitFailedException:
        table.refresh()
        return False
    return True


def _commit_updates(table: Table, updates: tuple[object, ...]) -> TableMetadata:
    """One step of the catalog, refused where the table has another head than it has here."""
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    before = table.metadata
    head = before.current_snapshot_id
    requirements = (AssertTableUUID(uuid=before.table_uuid), AssertRefSnapshotId(ref=MAIN, snapshot_id=head))
    answer = table.catalog.commit_table(table, requirements, updates)  # type: ignore[arg-type]
    table.metadata, table.metadata_location = answer.metadata, answer.metadata_location
    if before.properties.get("write.metadata.delete-after-commit.enabled") == "true":
        kept = {entry.metadata_file for entry in answer.metadata.metadata_log}
        delete(table, (each.metadata_file for each in before.metadata_log if each.metadata_file not in kept))
    return answer.metadata


def delete(table: Table, paths: Iterable[str]) -> None:
    """Remove files that nobody needs; what cannot be removed is left to ``lake.expiry``."""
    for path in paths:
        try:
            table.io.delete(path)
        except OSError as failure:
            logger.info("%s was not removed, which `tidelog lake expire` will do: %s", path, failure)


class _Attempt:
    """One attempt at a change: what it writes, and how that is taken back."""

    def __init__(self, table: Table, change: Change) -> None:
        self._table = table
        self._change = change
        self._unique = uuid.uuid4()
        self._written: list[str] = []
        self.snapshot_id = table.metadata.new_snapshot_id()

    def commit(self) -> None:
        from pyiceberg.table.refs import SnapshotRefType
        from pyiceberg.table.snapshots import Snapshot
        from pyiceberg.table.update import (
            AddSnapshotUpdate,
            RemoveSnapshotsUpdate,
            SetPropertiesUpdate,
            SetSnapshotRefUpdate,
        )

        metadata = self._table.metadata
        head = metadata.current_snapshot()
        manifests, removed = self._manifests(head)
        sequence_number = metadata.next_sequence_number()
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=sequence_number,
            manifest_list=self._write_list(head, sequence_number, manifests),
            summary=self._summary(head, removed),
            schema_id=metadata.current_schema_id,
        )
        updates: list[object] = [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name=MAIN, type=SnapshotRefType.BRANCH, snapshot_id=self.snapshot_id),
        ]
        if self._change.properties:
            updates.append(SetPropertiesUpdate(updates=dict(self._change.properties)))
        dropped = _surplus(metadata)
        if dropped:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in dropped]))
        after = _commit_updates(self._table, tuple(updates))
        if dropped:
            self._forget(dropped, after.snapshots)

    def _forget(self, dropped: Iterable[Snapshot], kept: Iterable[Snapshot]) -> None:
        """Remove the manifests of snapshots that are dropped; the commit has taken place, whatever fails."""
        try:
            unneeded = _metadata_files(self._table, dropped, kept)
        except OSError as failure:
            logger.info("manifests were not removed, which `tidelog lake expire` will do: %s", failure)
        else:
            delete(self._table, unneeded)

    def undo(self) -> None:
        """Remove what an attempt that has certainly failed has written."""
        delete(self._table, self._written)

    def _manifests(self, head: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests of the new snapshot, and the files that it takes out."""
        before = [] if head is None else head.manifests(self._table.io)
        there = [each for each in before if each.has_added_files() or each.has_existing_files()]
        gone: list[ManifestEntry] = []
        if self._change.removed:
            there, gone = self._without(there, self._change.removed)
        fresh = []
        if self._change.added:
            with self._writer(self._table.metadata.default_spec_id) as writer:
                for file in self._change.added:
                    writer.add(_entry(file, self.snapshot_id))
            fresh.append(writer.to_manifest_file())
        for spec_id in sorted({entry.data_file.spec_id for entry in gone}):
            with self._writer(spec_id) as writer:
                for entry in gone:
                    if entry.data_file.spec_id == spec_id:
                        writer.delete(entry)
            fresh.append(writer.to_manifest_file())
        return fresh + self._merged(there), [entry.data_file for entry in gone]

    def _without(
        self, manifests: Sequence[ManifestFile], paths: frozenset[str]
    ) -> tuple[list[ManifestFile], list[ManifestEntry]]:
        from pyiceberg.manifest import ManifestContent

        kept: list[ManifestFile] = []
        gone: list[ManifestEntry] = []
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA:
                kept.append(manifest)
                continue
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
            found = [entry for entry in entries if entry.data_file.file_path in paths]
            gone += found
            remaining = [entry for entry in entries if entry.data_file.file_path not in paths]
            if not found:
                kept.append(manifest)
            elif remaining:
                with self._writer(manifest.partition_spec_id) as writer:
                    for entry in remaining:
                        writer.existing(entry)
                kept.append(writer.to_manifest_file())
        missing = paths - {entry.data_file.file_path for entry in gone}
        if missing:
            raise FilesGoneError(
                f"{len(missing)} files of table {self._table.name()[-1]}, {min(missing)} among them, were "
                "replaced by somebody else: try again"
            )
        return kept, gone

    def _merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The same files in fewer manifests, where there are many of one size."""
        from pyiceberg.manifest import ManifestContent

        levels: dict[tuple[int, int, int], list[ManifestFile]] = defaultdict(list)
        for manifest in manifests:
            files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            level = (files.bit_length() - 1) // (MERGED_MANIFESTS.bit_length() - 1)
            levels[manifest.content, manifest.partition_spec_id, level].append(manifest)
        found: list[ManifestFile] = []
        for (content, spec_id, _), alike in levels.items():
            if content != ManifestContent.DATA or len(alike) < MERGED_MANIFESTS:
                found += alike
                continue
            with self._writer(spec_id) as writer:
                for manifest in alike:
                    for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                        writer.existing(entry)
            found.append(writer.to_manifest_file())
        return found

    def _writer(self, spec_id: int) -> ManifestWriter:
        from pyiceberg.manifest import write_manifest

        metadata = self._table.metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=metadata.specs()[spec_id],
            schema=metadata.schema(),
            output_file=self._table.io.new_output(self._place(f"{self._unique}-m{len(self._written)}.avro")),
            snapshot_id=self.snapshot_id,
            avro_compression=_CODEC,
        )

    def _write_list(self, head: Snapshot | None, sequence_number: int, manifests: list[ManifestFile]) -> str:
        from pyiceberg.manifest import write_manifest_list

        path = self._place(f"snap-{self.snapshot_id}-0-{self._unique}.avro")
        with write_manifest_list(
            format_version=self._table.metadata.format_version,
            output_file=self._table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=sequence_number,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests(manifests)
        return path

    def _place(self, name: str) -> str:
        path = self._table.location_provider().new_metadata_location(name)
        self._written.append(path)
        return path

    def _summary(self, head: Snapshot | None, removed: Sequence[DataFile]) -> Summary:
        from pyiceberg.table.snapshots import (
            Operation,
            SnapshotSummaryCollector,
            Summary,
            update_snapshot_summaries,
        )

        metadata = self._table.metadata
        collector = SnapshotSummaryCollector()
        for file in self._change.added:
            collector.add_file(file, metadata.schema(), metadata.spec())
        for file in removed:
            collector.remove_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        counted = update_snapshot_summaries(
            Summary(operation=Operation.OVERWRITE, **collector.build(), **self._change.summary),
            None if head is None or head.summary is None else head.summary,
        )
        # PyIceberg counts for appends and overwrites alone; it is the same for a replacement.
        return Summary(operation=Operation(self._change.operation), **counted.additional_properties)


def _entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _surplus(metadata: TableMetadata) -> list[Snapshot]:
    """Snapshots that a commit drops: none before there are twice as many as are kept."""
    keep = max(1, int(metadata.properties.get(KEPT_SNAPSHOTS_PROPERTY, KEPT_SNAPSHOTS)))
    named = {reference.snapshot_id for reference in metadata.refs.values()}
    by_age = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    if len(by_age) < 2 * keep:
        return []
    return [snapshot for snapshot in by_age[:-keep] if snapshot.snapshot_id not in named]


def _metadata_files(table: Table, dropped: Iterable[Snapshot], kept: Iterable[Snapshot]) -> set[str]:
    """Manifest lists and manifests of snapshots that no other snapshot has."""
    needed = {manifest.manifest_path for each in kept for manifest in each.manifests(table.io)}
    lists = {each.manifest_list for each in dropped}
    return (
        lists | {manifest.manifest_path for each in dropped for manifest in each.manifests(table.io)} - needed
    )
