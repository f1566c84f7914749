"""The file that ties a partition's directory to its topic's id.

``partition.metadata`` holds two lines, without a newline at the end, and is written once, atomically,
before the first record::

    version: 0
    topic_id: vEV9Yz-QTvKKr9jj9XBbZg

It is not synced: making a thousand partitions would wait for a thousand disk flushes, and the store of the
metadata knows the id. A machine that is lost at that moment leaves an empty file or none, which is written
again. A directory from before topic ids has none either. Called by ``log`` and by the log directories.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import StorageError
from tidelog.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import PARTITION_METADATA_FILE


def read_partition_metadata(directory: Path) -> Uuid | None:
    """The topic id that ``directory`` was made for, None if it has no such file or an empty one."""
    path = directory / PARTITION_METADATA_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _malformed(path) from error
    if not text:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        topic_id = uuid_from_text(fields["topic_id"].strip())
        if fields["version"].strip() != "0" or topic_id == ZERO_UUID:
            raise _malformed(path)
    except (KeyError, ValueError) as error:
        raise _malformed(path) from error
    return topic_id


def write_partition_metadata(directory: Path, topic_id: Uuid, disk: Disk = REAL_DISK) -> None:
    """Write the file."""
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    disk.write_atomically(directory / PARTITION_METADATA_FILE, text.encode("utf-8"), sync=False)


def _malformed(path: Path) -> StorageError:
    return StorageError(
        f"{path} does not hold 'version: 0' and a topic id; restore it from another replica, or move the "
        "partition's directory away to start it empty"
    )
