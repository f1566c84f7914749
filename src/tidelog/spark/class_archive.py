"""An archive of the classes that Spark's JVM loads, so that the next JVM maps them instead of loading them.

Java calls it a dynamic CDS archive. A session is there in half the time with it, and a tenth of the CPU until
the first results is saved. A JVM that records writes ``<key>.new`` when it ends, which takes some seconds;
``<key>.seen`` says that it had seen enough (:func:`seen_enough`), so that a run that ended early is not what
later ones live with. The next start makes it ``<key>.jsa``. The JVM checks by itself that an archive fits its
version, flags and jars, and does without one that does not.

All lies in the user's cache directory, for the last Java, PySpark and version of this package that recorded.
Called by ``pipelines.session`` and by the main job, which records.
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_MAGIC = 0xF00BABA8
"""The first four bytes of a dynamic archive; they are written last."""
_NAME = "spark-classes"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_options(java_home: Path, *, record: bool = False) -> str:
    """Options for a JVM of ``java_home``: use the archive or, if there is none and ``record``, write one."""
    archive = _archive(java_home)
    if archive is None:
        return ""
    new, seen = archive.with_suffix(".new"), archive.with_suffix(".seen")
    try:
        if seen.exists() and _is_whole(new):
            new.replace(archive)
            seen.unlink()
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
        if not record:
            return ""
        for old in archive.parent.glob(f"{_NAME}-*"):
            old.unlink()
    except OSError:
        # Another process tidies up at the same time, or may not write here: do without.
        return ""
    return f"-XX:ArchiveClassesAtExit={new} {_QUIET}"


def is_recording(options: str) -> bool:
    """Whether a JVM with these options writes an archive when it ends."""
    return "-XX:ArchiveClassesAtExit=" in options


def seen_enough(java_home: Path) -> None:
    """The JVM that records has loaded what it should: what it writes at its end is to be used."""
    archive = _archive(java_home)
    if archive is not None and not archive.exists():
        archive.with_suffix(".seen").touch()


def _archive(java_home: Path) -> Path | None:
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        directory = (Path(chosen) if chosen else Path.home() / ".cache") / "tidelog"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # A home that is read-only, or none at all: containers are often so.
        return None
    if not os.access(directory, os.W_OK) or " " in str(directory):
        return None
    parts = "\n".join((str(java_home.resolve()), os.environ.get("SPARK_HOME", ""), *map(_version, _PACKAGES)))
    return directory / f"{_NAME}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}.jsa"


_PACKAGES = ("pyspark", "tidelog")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is_whole(archive: Path) -> bool:
    """Whether the JVM that wrote it came to the end."""
    try:
        with archive.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return _MAGIC in (int.from_bytes(start, "little"), int.from_bytes(start, "big"))
