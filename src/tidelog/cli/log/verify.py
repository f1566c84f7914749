"""``tidelog log verify``: read a whole log directory, or one partition of it, and say whether it is sound.

Only reads, so it may run beside a broker. Exit code 1 when anything is damaged; each damaged partition is
followed by what is wrong and what a restart would do about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.failure import Failure
from tidelog.cli.log.partition_check import PartitionReport, Progress, RecoveryState, check_partition
from tidelog.cli.output import counted, examples, is_terminal, print_json, print_table
from tidelog.cli.shared_options import JsonOutput
from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.files import DELETE_DIR_SUFFIX, LOG_SUFFIX, parse_directory_name
from tidelog.storage.log_dir.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    OffsetCheckpoint,
)
from tidelog.storage.log_dir.log_dir import CLEAN_SHUTDOWN_FILE
from tidelog.storage.log_dir.meta_properties import read_meta_properties

EPILOG = examples("tidelog log verify data", "tidelog log verify data/orders-0")

_COLUMNS = ("partition", "segments", "batches", "records", "bytes", "offsets", "state")


def command(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A log directory or a partition directory.", show_default=False),
    ],
    json: JsonOutput = False,
) -> None:
    """Check every batch, index, snapshot and checkpoint. Changes nothing; may run beside a broker."""
    if not directory.is_dir():
        raise Failure(f"{directory} is not a directory: specify a log directory or a partition directory")
    partitions, log_dir = _find_partitions(directory)
    problems, states = _read_log_dir(log_dir)
    total = sum(log.stat().st_size for each in partitions for log in each.glob(f"*{LOG_SUFFIX}"))
    with _progress_bar(total) as progress:
        reports = [
            check_partition(each, states(parse_directory_name(each.name)[0]), progress) for each in partitions
        ]
    if json:
        print_json({"log_dir": problems, "partitions": [_as_json(report) for report in reports]})
    else:
        _print(reports, problems)
    damaged = sum(not report.is_sound for report in reports)
    if damaged or problems:
        where = counted(damaged, "damaged partition") if damaged else counted(len(problems), "damaged file")
        raise Failure(f"{directory.resolve()} has {where}")


def _find_partitions(directory: Path) -> tuple[list[Path], Path]:
    """The partitions to check, and the log directory they lie in."""
    if any(directory.glob(f"*{LOG_SUFFIX}")):
        directory = directory.resolve()
        return [directory], directory.parent
    found: list[Path] = []
    for path in sorted(directory.iterdir()):
        try:
            _, suffix = parse_directory_name(path.name)
        except StorageError:
            continue
        if path.is_dir() and suffix != DELETE_DIR_SUFFIX:
            found.append(path)
    if not found:
        raise Failure(
            f"{directory} contains no partition: specify a log directory (log.dirs) or a partition directory"
        )
    return found, directory


def _read_log_dir(log_dir: Path) -> tuple[list[str], Callable[[TopicPartition], RecoveryState]]:
    """What is wrong with the files beside the partitions, and where recovery would start in each of them."""
    problems: list[str] = []
    points: dict[TopicPartition, int] = {}
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
        try:
            offsets = OffsetCheckpoint(log_dir / name).read()
        except StorageError as error:
            problems.append(str(error))
            continue
        if name == RECOVERY_POINT_FILE:
            points = offsets
    try:
        read_meta_properties(log_dir)
    except StorageError as error:
        problems.append(str(error))
    clean = (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    return problems, lambda partition: RecoveryState(points.get(partition, 0), clean)


def _print(reports: list[PartitionReport], problems: list[str]) -> None:
    rows = [
        (
            report.name,
            report.segments,
            report.batches,
            report.records,
            report.size_bytes,
            "-" if report.start_offset is None else f"{report.start_offset}..{report.end_offset}",
            _state(report),
        )
        for report in reports
    ]
    print_table(_COLUMNS, rows, right=_COLUMNS[1:5])
    for report in reports:
        for text in (*report.damage, *report.repairs):
            print(f"{report.name}: {text}")
        if report.restart is not None:
            print(f"{report.name}: {report.restart}")
        elif report.repairs and not report.damage:
            print(f"{report.name}: no records are lost; delete these files, and a restart rebuilds them")
    for text in problems:
        print(text)
    if is_terminal() and not problems and all(report.is_sound for report in reports):
        total = sum(report.batches for report in reports)
        print(f"{counted(total, 'batch')} in {counted(len(reports), 'partition')}: no damage found")


def _state(report: PartitionReport) -> str:
    if report.damage:
        return "DAMAGED"
    return "indexes" if report.repairs else "ok"


def _as_json(report: PartitionReport) -> dict[str, object]:
    return {**asdict(report), "sound": report.is_sound}


@contextmanager
def _progress_bar(total_bytes: int) -> Iterator[Progress]:
    """A bar on stderr while somebody looks at it; silence otherwise."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = ("reading", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total_bytes)
        yield lambda count: bar.advance(task, count)
