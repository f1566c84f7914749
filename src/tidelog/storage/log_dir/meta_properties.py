"""``meta.properties``: whose log directory this is.

A Java properties file at the top of each log directory, replaced atomically::

    broker.id=1
    cluster.id=3Db5QLSqSZieL3rJBUUegA
    directory.id=Rd0CvYAKQlK4uFpQqe4qqg
    version=0

Version 0 is what Kafka writes with ZooKeeper and the one we write, so that Kafka 3.9's brokers and tools
take the directory; version 1 (KRaft) has ``node.id`` in place of ``broker.id`` and is read as well and kept
as it is. The ids keep a directory from being mounted under another broker or cluster.
Invariant: :func:`agreed_identity` lets a broker start only if all its directories say the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from tidelog.errors import StorageError
from tidelog.ids import Uuid, random_uuid, uuid_from_text, uuid_to_text
from tidelog.storage.disk import REAL_DISK, Disk

META_PROPERTIES_FILE: Final = "meta.properties"

_ID_NAMES: Final = {0: "broker.id", 1: "node.id"}
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", re.DOTALL)


class MetaProperties(Struct, frozen=True):
    """The content of one file; in version 0 every id may be missing."""

    version: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: Uuid | None = None


class Identity(Struct, frozen=True):
    """Who the broker is, as far as its directories know."""

    broker_id: int | None
    cluster_id: str | None


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """What ``directory`` says of itself; None without a file, :class:`StorageError` if it makes no sense."""
    path = directory / META_PROPERTIES_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _malformed(path, "it is no text") from error
    fields = _parse(text)
    version = _number(path, fields, "version", 0)
    if version not in _ID_NAMES:
        raise _malformed(path, f"version {version} is not known")
    id_name = _ID_NAMES[version]
    if version > 0 and not {id_name, "cluster.id"} <= fields.keys():
        raise _malformed(path, f"version {version} needs {id_name} and cluster.id")
    directory_id: Uuid | None = None
    if "directory.id" in fields:
        try:
            directory_id = uuid_from_text(fields["directory.id"])
        except ValueError as error:
            raise _malformed(path, f"directory.id: {error}") from error
    return MetaProperties(
        version, _number(path, fields, id_name, None), fields.get("cluster.id"), directory_id
    )


def write_meta_properties(directory: Path, meta: MetaProperties, disk: Disk = REAL_DISK) -> None:
    """Replace the file; on disk when this returns."""
    fields = {"version": str(meta.version)}
    if meta.broker_id is not None:
        fields[_ID_NAMES[meta.version]] = str(meta.broker_id)
    if meta.cluster_id is not None:
        fields["cluster.id"] = meta.cluster_id
    if meta.directory_id is not None:
        fields["directory.id"] = uuid_to_text(meta.directory_id)
    written = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    lines = ["#", f"#{written}", *(f"{name}={_escape(value)}" for name, value in sorted(fields.items()))]
    disk.write_atomically(directory / META_PROPERTIES_FILE, ("\n".join(lines) + "\n").encode("utf-8"))


def agreed_identity(
    found: Mapping[Path, MetaProperties | None], *, broker_id: int | None, cluster_id: str | None
) -> Identity:
    """The ids that the directories and the configuration have in common.

    None stands for "not set"; two different answers raise a :class:`StorageError` that names the file.
    """
    broker_source = cluster_source = "the configuration"
    for directory, meta in found.items():
        if meta is None:
            continue
        path = directory / META_PROPERTIES_FILE
        if meta.broker_id is not None:
            if broker_id is not None and meta.broker_id != broker_id:
                raise StorageError(
                    f"{path} belongs to broker {meta.broker_id}, but {broker_source} says {broker_id}: "
                    f"set broker.id={meta.broker_id}, or take {directory} out of log.dirs"
                )
            broker_id, broker_source = meta.broker_id, str(path)
        if meta.cluster_id is not None:
            if cluster_id is not None and meta.cluster_id != cluster_id:
                raise StorageError(
                    f"{path} belongs to cluster {meta.cluster_id}, but {cluster_source} says {cluster_id}: "
                    f"point the broker at the cluster it came from, or take {directory} out of log.dirs"
                )
            cluster_id, cluster_source = meta.cluster_id, str(path)
    return Identity(broker_id, cluster_id)


def settled(
    found: Mapping[Path, MetaProperties | None], *, broker_id: int, cluster_id: str
) -> dict[Path, MetaProperties]:
    """What each directory's file is to say from now on; :class:`StorageError` if one is somebody else's."""
    agreed_identity(found, broker_id=broker_id, cluster_id=cluster_id)
    settled_metas: dict[Path, MetaProperties] = {}
    known: dict[Uuid, Path] = {}
    for directory, meta in found.items():
        before = meta or MetaProperties()
        directory_id = before.directory_id or random_uuid()
        if directory_id in known:
            raise StorageError(
                f"{known[directory_id]} and {directory} have the same directory.id "
                f"{uuid_to_text(directory_id)}: one is a copy of the other, take it out of log.dirs"
            )
        known[directory_id] = directory
        settled_metas[directory] = MetaProperties(before.version, broker_id, cluster_id, directory_id)
    return settled_metas


def _number(path: Path, fields: Mapping[str, str], name: str, default: int | None) -> int | None:
    if name not in fields:
        return default
    try:
        return int(fields[name])
    except ValueError:
        raise _malformed(path, f"{name}={fields[name]} is no number") from None


def _malformed(path: Path, why: str) -> StorageError:
    return StorageError(f"{path} cannot be used: {why}; restore it, or delete it to have it written anew")


def _parse(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        match = _PROPERTY.fullmatch(stripped)
        if match is not None:
            fields[_unescape(match[1])] = _unescape(match[2])
    return fields


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#!])", r"\\\1", text)
