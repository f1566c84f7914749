"""``tidelog log dump``: print what is in a file of a log directory, and mark what is damaged.

Every kind of file that Kafka and Tidelog keep is told by its name. Files are only read. Exit code 1 when
anything in the file is damaged.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import typer

from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.log import dump_entries as entries
from tidelog.cli.log.dump_segment import dump_segment
from tidelog.cli.output import counted, examples, remark
from tidelog.storage.files import (
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.storage.log_dir.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from tidelog.storage.log_dir.meta_properties import META_PROPERTIES_FILE
from tidelog.wire.internal_topics.decode import RecordSchemas
from tidelog.wire.internal_topics.naming import CONSUMER_OFFSETS, TRANSACTION_STATE

EPILOG = examples(
    "tidelog log dump data/orders-0/00000000000000000000.log --records",
    "tidelog log dump data/orders-0/00000000000000000000.index --verify-index",
    "tidelog log dump data/recovery-point-offset-checkpoint",
    "tidelog log dump data/__consumer_offsets-3/00000000000000000000.log --offsets-decoder",
)


class _Dumper(Protocol):
    def __call__(self, path: Path, *, json: bool) -> int: ...


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="Segment, index, snapshot and checkpoint files.", show_default=False
        ),
    ],
    records: Annotated[bool, typer.Option("--records", help="Also print the records of each batch.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    verify_index: Annotated[
        bool,
        typer.Option("--verify-index", help="Check .index and .timeindex files against their .log file."),
    ] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        typer.Option("--transaction-log-decoder", help="Decode records as those of __transaction_state."),
    ] = False,
) -> None:
    """Print segments, indexes, producer snapshots and checkpoints, and mark what is damaged."""
    if offsets_decoder and transaction_log_decoder:
        raise WrongUsage("use either --offsets-decoder or --transaction-log-decoder, not both")
    schemas = CONSUMER_OFFSETS if offsets_decoder else TRANSACTION_STATE if transaction_log_decoder else None
    dumpers = _dumpers(records or schemas is not None, verify_index, schemas)
    damaged = 0
    for path in files:
        dump = _dumper_for(path, dumpers)
        if len(files) > 1:
            remark(f"{path}:")
        damaged += dump(path, json=json)
    if damaged:
        raise Failure(f"{counted(damaged, 'damaged place')} found, marked BAD in the output")


def _dumpers(records: bool, verify_index: bool, schemas: RecordSchemas | None) -> dict[str, _Dumper]:
    return {
        LOG_SUFFIX: partial(dump_segment, with_records=records, schemas=schemas),
        OFFSET_INDEX_SUFFIX: partial(entries.dump_offset_index, verify=verify_index),
        TIME_INDEX_SUFFIX: partial(entries.dump_time_index, verify=verify_index),
        TXN_INDEX_SUFFIX: entries.dump_transaction_index,
        SNAPSHOT_SUFFIX: entries.dump_producer_snapshot,
        LEADER_EPOCH_FILE: entries.dump_leader_epochs,
        PARTITION_METADATA_FILE: entries.dump_partition_metadata,
        META_PROPERTIES_FILE: entries.dump_meta_properties,
        RECOVERY_POINT_FILE: entries.dump_checkpoint,
        LOG_START_FILE: entries.dump_checkpoint,
        HIGH_WATERMARK_FILE: entries.dump_checkpoint,
        CLEANER_FILE: entries.dump_checkpoint,
    }


def _dumper_for(path: Path, dumpers: dict[str, _Dumper]) -> _Dumper:
    if path.is_dir():
        raise WrongUsage(f"{path} is a directory: specify files, or use `tidelog log verify {path}`")
    # Files that wait for something (.cleaned, .swap, .deleted) are of the kind that their first suffix says.
    suffix = "." + path.name.partition(".")[2].partition(".")[0]
    dump = dumpers.get(path.name) or dumpers.get(suffix)
    if dump is None:
        kinds = ", ".join(f"*{kind}" if kind.startswith(".") else kind for kind in dumpers)
        raise WrongUsage(f"{path} cannot be dumped; supported files: {kinds}")
    return dump
