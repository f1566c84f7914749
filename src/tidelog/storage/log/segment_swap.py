"""Putting cleaned segments in the place of old ones, so that no crash leaves both or neither.

The cleaner writes new segments with the suffix ``.cleaned``. They then become ``.swap``, from the last to
the first; the old ones become ``.deleted``; the new ones lose their suffix. At load:

- any ``.cleaned`` file means that not all had become ``.swap``: it goes, and so does every ``.swap`` file at
  or behind the first of them; the old segments are all still there;
- ``.swap`` files alone mean that the new segments were complete: old segments within their range go, and the
  new ones lose their suffix;
- ``.deleted`` files go.

Called by ``log_files`` (:func:`name_swapped`, :func:`name_finally`) and by ``log_loader``
(:func:`finish_interrupted_swap`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tidelog.clock import Clock
from tidelog.storage.disk import Disk
from tidelog.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_of,
)
from tidelog.storage.log.recovery_report import RecoveryReport
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import Segment

_KRAFT_SNAPSHOT = ".checkpoint" + DELETED_SUFFIX


def name_swapped(new: Iterable[Segment]) -> None:
    """Name cleaned segments ``.swap``: from now on they are the ones that count."""
    for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
        segment.files.rename(SWAP_SUFFIX)


def name_finally(new: Iterable[Segment]) -> None:
    """Give swapped segments their own names, but for one that has been removed meanwhile."""
    for segment in sorted(new, key=lambda segment: segment.base_offset):
        if segment.files.state_suffix == SWAP_SUFFIX:
            segment.files.rename("")


def finish_interrupted_swap(
    directory: Path, config: LogConfig, clock: Clock, disk: Disk, report: RecoveryReport
) -> list[str]:
    """Bring a partition's directory to rest; gives back the names of the files that are left."""
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file())
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        return names
    names = _remove_unfinished(directory, names, disk, report)
    swapped = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not swapped:
        return names
    for name in _replaced_files(directory, names, swapped, config, clock, disk):
        disk.unlink(directory / name)
        names.remove(name)
        report.files_removed += 1
    for name in swapped:
        final = name.removesuffix(SWAP_SUFFIX)
        disk.replace(directory / name, directory / final)
        names[names.index(name)] = final
        report.swaps_completed += name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
    disk.sync_path(directory)
    return sorted(set(names))


def _remove_unfinished(directory: Path, names: list[str], disk: Disk, report: RecoveryReport) -> list[str]:
    cleaned = [offset_of(name) or 0 for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min(cleaned, default=None)
    kept: list[str] = []
    for name in names:
        unfinished = (
            first_cleaned is not None
            and name.endswith(SWAP_SUFFIX)
            and (offset_of(name) or 0) >= first_cleaned
        )
        deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT)
        if unfinished or deleted or name.endswith(CLEANED_SUFFIX):
            disk.unlink(directory / name)
            report.files_removed += 1
        else:
            kept.append(name)
    return kept


def _replaced_files(
    directory: Path, names: list[str], swapped: list[str], config: LogConfig, clock: Clock, disk: Disk
) -> list[str]:
    """The files of old segments whose records the swapped ones hold."""
    ranges: list[tuple[int, int]] = []
    for name in swapped:
        base_offset = offset_of(name)
        if base_offset is None or not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        segment = Segment.open(
            directory, base_offset, config, clock=clock, disk=disk, state_suffix=SWAP_SUFFIX
        )
        segment.is_loading = True
        has_index = segment.path(OFFSET_INDEX_SUFFIX).exists()
        end = segment.next_offset() if has_index else _end_without_index(segment)
        segment.close_handles()
        ranges.append((base_offset, end))
    if not ranges:
        return []
    first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
    return [
        name for name in names if name.endswith(SEGMENT_SUFFIXES) and first <= (offset_of(name) or 0) < end
    ]


def _end_without_index(segment: Segment) -> int:
    end = segment.base_offset
    for _, header in segment.scan():
        end = header.next_offset
    return end
