"""What a lake's directory holds: Iceberg tables of some catalog; a note in it says which.

    <lake>/lake.json    {"form": "iceberg", "catalog": "sqlite" or a REST catalog's URI, "root": its path,
                         "warehouse": where the tables are, if that is an object store, and then
                         "id": by which a copy of the directory is known}

A directory that holds anything else is refused. Nothing here imports PyIceberg. Called by who opens a lake,
before anything is read or written.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError

STORES = ("s3", "gs", "oss")
"""Schemes of object stores that PyIceberg reaches through PyArrow; those of Azure it does not."""
SQLITE = "sqlite"
"""The catalog in the lake's own directory."""
_NOTE = "lake.json"


class LakeError(TidelogError):
    """A lake that cannot be opened or changed; the text names it and the mend."""


def first_line(failure: BaseException) -> str:
    """What went wrong, for a sentence; some say no more than what they are."""
    return next(iter(str(failure).splitlines()), "") or type(failure).__name__


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Which lake somebody means."""

    root: Path
    catalog: str | None = None
    """The URI of a REST catalog; None: that of the lake that is there; a new one has one of its own."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the REST catalog and the object store, in PyIceberg's names; there may be secrets in them."""
    warehouse: str | None = None
    """The URI in an object store under which a new lake's tables are to be; None: that of the lake that is
    there; a new one has them in its directory, or where its REST catalog puts them."""


class LakeNote(msgspec.Struct, frozen=True, tag_field="form", tag="iceberg"):
    """What a lake is."""

    catalog: str
    root: str
    warehouse: str = ""
    id: str = ""


def lake_note(settings: LakeSettings) -> LakeNote | None:
    """What the lake that is there is; None where there is none.

    :raises LakeError: it is not what the settings say, or is not where it was made.
    """
    there = _read(settings.root)
    if there is None:
        _refuse_plain_files(settings.root)
        if settings.warehouse is not None:
            _check_warehouse(settings)
        return None
    if settings.catalog is not None and settings.catalog != there.catalog:
        kept = "in its own directory" if there.catalog == SQLITE else f"at {there.catalog}"
        raise LakeError(
            f"the lake {settings.root} has its catalog {kept}, not at {settings.catalog}: leave "
            "--lake-catalog out, or give another --directory"
        )
    if settings.warehouse is not None and settings.warehouse.rstrip("/") != there.warehouse:
        kept = f"under {there.warehouse}" if there.warehouse else "not in an object store of its own"
        raise LakeError(
            f"the lake {settings.root} has its tables {kept}: leave --lake-warehouse out, or give another "
            "--directory"
        )
    if there.catalog == SQLITE and not _same_place(settings.root, Path(there.root)):
        _check_moved(settings.root, there)
    return there


def _check_moved(root: Path, there: LakeNote) -> None:
    """Refuse a lake elsewhere than it was made, unless its tables are in a store and it is no copy."""
    if not there.warehouse:
        raise LakeError(
            f"the lake {root} was made as {there.root}, and Iceberg's tables name their files by "
            "whole paths: move it back, or make the old path a link to the new one"
        )
    original = _read(Path(there.root))
    if original is not None and (original.warehouse, original.id) == (there.warehouse, there.id):
        raise LakeError(
            f"the lake {root} is a copy of {there.root}, and both have their tables under {there.warehouse}, "
            "where each would remove files of the other: go on with that one, or put this one in its place"
        )


def note_moved(settings: LakeSettings, there: LakeNote) -> None:
    """Remember where a lake is now, so that copies are known; who may only read leaves it to others."""
    if there.catalog == SQLITE and there.warehouse and not _same_place(settings.root, Path(there.root)):
        with suppress(LakeError):
            write_note(settings.root, msgspec.structs.replace(there, root=str(settings.root.absolute())))


def wanted_note(settings: LakeSettings) -> LakeNote:
    """What the lake is, or is to be: who opens a new one writes it, before anything is in it.

    :raises LakeError: there are properties that nobody would look at.
    """
    wanted = lake_note(settings) or _new_note(settings)
    if settings.properties and not wanted.warehouse and wanted.catalog == SQLITE:
        raise LakeError(
            f"the lake {settings.root} has neither a REST catalog nor an object store, which --lake-property "
            "is for: leave it out, or say --lake-catalog or --lake-warehouse with a new lake"
        )
    return wanted


def _new_note(settings: LakeSettings) -> LakeNote:
    warehouse = (settings.warehouse or "").rstrip("/")
    root = str(settings.root.absolute())
    return LakeNote(settings.catalog or SQLITE, root, warehouse, uuid.uuid4().hex if warehouse else "")


def write_note(root: Path, note: LakeNote) -> None:
    """Make a directory the lake that the note says."""
    path = root / _NOTE
    try:
        root.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.write_bytes(msgspec.json.encode(note) + b"\n")
        unfinished.replace(path)
    except OSError as failure:
        raise LakeError(f"the lake {root} cannot be written: {failure}") from failure


def _read(root: Path) -> LakeNote | None:
    path = root / _NOTE
    try:
        return msgspec.json.decode(path.read_bytes(), type=LakeNote)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        raise LakeError(f"{path}, which says what the lake is, cannot be read: {failure}") from failure
    except DECODE_ERRORS as error:
        raise LakeError(
            f"{path} does not describe a lake of Iceberg tables: {error}; restore it from a copy, delete the "
            "lake and backfill, or give another --directory"
        ) from error


def _refuse_plain_files(root: Path) -> None:
    """Refuse a lake of before there were Iceberg tables: it would become one beside its own files."""
    if (root / "_batches").is_dir() or any(root.glob("*/date=*")):
        raise LakeError(
            f"the lake {root} is plain Parquet, which this version does not read: delete it and backfill, or "
            "give another --directory"
        )


def _same_place(root: Path, made: Path) -> bool:
    if root.absolute() == made:
        return True
    try:
        return root.samefile(made)
    except OSError:  # one of both is not there, or not for us
        return False


def _check_warehouse(settings: LakeSettings) -> None:
    """Refuse what cannot be where a new lake's tables are."""
    if settings.catalog is not None:
        raise LakeError(
            "a REST catalog says itself where tables are: leave --lake-warehouse out, or choose among its "
            "warehouses with --lake-property warehouse=NAME"
        )
    try:
        uri = urlparse(settings.warehouse or "")
    except ValueError:  # brackets, which are for addresses of IPv6
        uri = urlparse("")
    # Before any sentence that repeats the URI: it may be a secret, and have a slash in it.
    if "@" in uri.netloc or ":" in uri.netloc:
        raise LakeError(
            "--lake-warehouse has something before its bucket: write s3://bucket/path; keys are given in "
            "the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3), or in ~/.pyiceberg.yaml"
        )
    double = "//" in uri.path.rstrip("/")
    if uri.scheme not in STORES or not uri.netloc or uri.query or uri.fragment or double:
        raise LakeError(
            f"--lake-warehouse {settings.warehouse!r} is no place in an object store: write s3://bucket/path "
            f"(schemes: {', '.join(STORES)}); a path of a file system is chosen by --directory"
        )
