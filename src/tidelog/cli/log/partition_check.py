"""Checks one partition's directory: every batch, every index entry, snapshots, epochs, metadata. Only reads.

The verdict says what a restart would do about damage. Recovery reads segments from the recovery point on,
unless the last shutdown was clean; it cuts the log at the first bad batch there and deletes later
segments. Damage below the recovery point stays in place until somebody fetches it. Broken indexes and
snapshots cost nothing but the time to rebuild them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tidelog.cli.log.index_check import (
    SegmentMap,
    aborted_transactions,
    check_offset_entries,
    check_time_entries,
    offset_entries,
    time_entries,
)
from tidelog.cli.log.segment_scan import TornTail, map_file, scan
from tidelog.cli.output import counted
from tidelog.errors import StorageError
from tidelog.storage.disk import REAL_DISK
from tidelog.storage.files import (
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
    segment_path,
)
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.partition_metadata import read_partition_metadata
from tidelog.storage.producers.producer_snapshots import decode_snapshot
from tidelog.storage.segment.transaction_index import ENTRY_SIZE

EntryT = TypeVar("EntryT")
Progress = Callable[[int], None]


@dataclass
class PartitionReport:
    """What was found in one partition; ``damage`` is about records, ``repairs`` about what can be rebuilt."""

    name: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    damage: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    restart: str | None = None

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.repairs


@dataclass(frozen=True)
class RecoveryState:
    """What decides how a restart treats a partition."""

    recovery_point: int = 0
    clean_shutdown: bool = False


def check_partition(directory: Path, state: RecoveryState, progress: Progress) -> PartitionReport:
    """Check everything in ``directory``; ``progress`` is told how many bytes of log were read."""
    report = PartitionReport(directory.name)
    names = sorted(path.name for path in directory.iterdir())
    bases = sorted(
        offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None
    )
    cut: _Cut | None = None
    expected = 0
    for base in bases:
        segment = _Segment(directory, base, report, is_active=base == bases[-1])
        segment.check_log(expected, progress)
        segment.check_indexes()
        expected = max(expected, segment.end_offset)
        cut = cut or segment.cut
    report.segments = len(bases)
    if bases:
        report.start_offset, report.end_offset = bases[0], expected
    if cut is not None:
        report.restart = cut.what_a_restart_does(state, [base for base in bases if base > cut.base_offset])
    _check_strays(directory, names, set(bases), report)
    _check_small_files(directory, names, report)
    return report


@dataclass(frozen=True)
class _Cut:
    """The first bad batch of a partition."""

    log: Path
    base_offset: int
    position: int
    offset: int

    def what_a_restart_does(self, state: RecoveryState, later: list[int]) -> str:
        lost = self.log.stat().st_size - self.position
        lost += sum(segment_path(self.log.parent, base, LOG_SUFFIX).stat().st_size for base in later)
        action = f"truncate the log to offset {self.offset} ({self.log.name} at byte {self.position})"
        if later:
            action += f", delete {counted(len(later), 'later segment')}"
        action += f" and lose {counted(lost, 'byte')}"
        if state.clean_shutdown:
            return f"after this clean shutdown, a restart keeps it unchanged; recovery would {action}"
        # Recovery looks at the segment that holds the recovery point and at all later ones.
        if later and state.recovery_point >= later[0]:
            return (
                f"a restart keeps it unchanged, below the recovery point {state.recovery_point}; "
                f"recovery would {action}"
            )
        return f"a restart would {action}"


class _Segment:
    """One segment's files while they are being checked.

    Index entries are read before the log: a running broker writes them after the batches they point at.
    """

    def __init__(
        self, directory: Path, base_offset: int, report: PartitionReport, *, is_active: bool
    ) -> None:
        self.end_offset = base_offset
        self.cut: _Cut | None = None
        self._directory = directory
        self._base_offset = base_offset
        self._report = report
        self._is_active = is_active
        self._map = SegmentMap()
        self._offset_entries = self._load(OFFSET_INDEX_SUFFIX, offset_entries)
        self._time_entries = self._load(TIME_INDEX_SUFFIX, time_entries)

    def check_log(self, expected: int, progress: Progress) -> None:
        """Read every batch; ``expected`` is where the segment before ended."""
        path = segment_path(self._directory, self._base_offset, LOG_SUFFIX)
        if self._base_offset < expected:
            self._report.damage.append(f"{path.name}: the segment before it ends at offset {expected}")
        position = 0
        while True:
            with map_file(path) as data:
                tail = self._scan(path, data, position, progress)
                size = len(data)
            if tail is None or path.stat().st_size == size:
                break
            # A broker is writing here: what looked torn was a batch on its way into the file.
            position = tail.position
        self._report.size_bytes += size
        if tail is not None:
            self._damaged(path, tail.position, tail.problem)
            progress(tail.size_bytes)

    def _scan(self, path: Path, data: memoryview, position: int, progress: Progress) -> TornTail | None:
        for item in scan(data, self.end_offset, position):
            if isinstance(item, TornTail):
                return item
            if item.problem is not None:
                self._damaged(path, item.position, item.problem)
            self._map.add(item)
            self._report.batches += 1
            self._report.records += item.record_count
            self.end_offset = max(self.end_offset, item.last_offset + 1)
            progress(item.size_bytes)
        return None

    def _damaged(self, path: Path, position: int, problem: str) -> None:
        self._report.damage.append(f"{path.name} at byte {position}: {problem}")
        self.cut = self.cut or _Cut(path, self._base_offset, position, self.end_offset)

    def check_indexes(self) -> None:
        """Compare the segment's indexes with its batches."""
        self._note(OFFSET_INDEX_SUFFIX, check_offset_entries(self._offset_entries, self._map))
        self._note(TIME_INDEX_SUFFIX, check_time_entries(self._time_entries, self._map))
        path = segment_path(self._directory, self._base_offset, TXN_INDEX_SUFFIX)
        if not path.exists():
            return
        if path.stat().st_size % ENTRY_SIZE:
            self._report.repairs.append(f"{path.name}: incomplete entry at the end")
        for entry in self._load(TXN_INDEX_SUFFIX, aborted_transactions):
            if not self._base_offset <= entry.last_offset < self.end_offset:
                self._report.repairs.append(
                    f"{path.name}: a marker at offset {entry.last_offset}, outside the segment"
                )

    def _load(self, suffix: str, read: Callable[[Path], Iterable[EntryT]]) -> list[EntryT]:
        path = segment_path(self._directory, self._base_offset, suffix)
        try:
            return list(read(path))
        except FileNotFoundError:
            # Kafka makes the indexes of the segment it writes to with their first entry.
            if not self._is_active:
                self._report.repairs.append(f"{path.name}: missing")
        except StorageError as error:
            self._report.repairs.append(_about(path, error))
        return []

    def _note(self, suffix: str, checked: Iterable[tuple[object, str | None]]) -> None:
        found = [problem for _, problem in checked if problem is not None]
        if found:
            name = segment_path(self._directory, self._base_offset, suffix).name
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            self._report.repairs.append(f"{name}: {found[0]}{more}")


def _check_strays(directory: Path, names: list[str], bases: set[int], report: PartitionReport) -> None:
    for name in names:
        is_index = name.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
        if is_index and offset_of(name) not in bases:
            report.repairs.append(f"{name}: its segment is missing")


def _check_small_files(directory: Path, names: list[str], report: PartitionReport) -> None:
    for name in names:
        path = directory / name
        try:
            if name.endswith(SNAPSHOT_SUFFIX):
                decode_snapshot(path.read_bytes(), path)
            elif name == LEADER_EPOCH_FILE:
                LeaderEpochCache.load(path, REAL_DISK)
        except StorageError as error:
            report.repairs.append(_about(path, error))
    try:
        read_partition_metadata(directory)
    except StorageError as error:
        report.damage.append(_about(directory / PARTITION_METADATA_FILE, error))


def _about(path: Path, error: StorageError) -> str:
    """The error's own sentence, without the directory that the report names already."""
    text = str(error).replace(str(path), path.name)
    return text if path.name in text else f"{path.name}: {text}"
