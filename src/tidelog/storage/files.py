"""Names of the files and directories of a partition, exactly as Kafka names them.

A segment's files carry its base offset in 20 digits: ``00000000000000000000.log``, ``.index``,
``.timeindex``, ``.txnindex``; a producer snapshot the offset it was taken at, ``.snapshot``. A second
suffix tells what a file is waiting for:

- ``.cleaned``  the cleaner is still writing it: a crash throws it away
- ``.swap``     it is about to replace older segments: a crash completes that
- ``.deleted``  nobody may read it any more: a crash deletes it

Directories are ``topic-partition``, or ``topic-partition.<32 hex digits>`` with one of the suffixes
``-delete`` ``-future`` ``-stray``. Used by everything in ``storage``.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

PARTITION_METADATA_FILE: Final = "partition.metadata"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"

DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"
_DIR_SUFFIXES: Final = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)

_SUFFIXED_DIRECTORY: Final = re.compile(r"^(\S+)-(\S+)\.(\S+)(-delete|-future|-stray)$")
_NAME_LIMIT: Final = 255


def file_name(offset: int, suffix: str, state_suffix: str = "") -> str:
    """``00000000000000000042.log`` for offset 42; ``state_suffix`` is a second suffix such as ``.swap``."""
    return f"{offset:020d}{suffix}{state_suffix}"


def offset_of(name: str) -> int | None:
    """The offset in front of a segment's or snapshot's file name, None where the name has none."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def parse_directory_name(name: str) -> tuple[TopicPartition, str]:
    """The partition that a directory belongs to and its suffix (``""``, ``-delete`` …)."""
    suffix = next((known for known in _DIR_SUFFIXES if name.endswith(known)), "")
    if suffix and _SUFFIXED_DIRECTORY.match(name) is None:
        raise _not_a_partition(name)
    plain = name[: name.rindex(".")] if suffix else name
    topic, dash, partition = plain.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        raise _not_a_partition(name)
    return TopicPartition(topic, int(partition)), suffix


def _not_a_partition(name: str) -> StorageError:
    return StorageError(
        f"the directory {name!r} is not named topic-partition; move it out of the log directory, "
        "which may hold nothing but partitions"
    )


def suffixed_directory_name(partition: TopicPartition, suffix: str) -> str:
    """A fresh name under which a partition waits for deletion, takes shape or is set aside.

    Long topic names are cut to what a file system takes, except for ``-future``, whose topic is read back.
    """
    tail = f"-{partition.partition}.{uuid.uuid4().hex}{suffix}"
    topic = partition.topic if suffix == FUTURE_DIR_SUFFIX else partition.topic[: _NAME_LIMIT - len(tail)]
    return topic + tail


def segment_path(directory: Path, base_offset: int, suffix: str, state_suffix: str = "") -> Path:
    """The path of one of a segment's files."""
    return directory / file_name(base_offset, suffix, state_suffix)
