"""An archive of the classes that Spark's JVM loads, so that it maps them instead of loading them.

Java calls it a CDS archive. A session is there in half the time with it, and a part of the CPU until the
first results is saved. Which classes those are is known beforehand: ``spark_classes.txt.gz`` beside this file
was recorded from the main job (``scripts/record_spark_classes.py``). A JVM that does nothing else makes the
archive of that list, which takes about a minute of CPU: when Tidelog is set up (``make setup`` runs this
module), or in the background once the main job has ended. Nobody waits for it.

The archive lies in the virtual environment, else in the user's cache directory, under a name made of Java,
Spark's home and both versions. It appears there whole, by a rename. The JVM checks by itself that an archive
fits its version, flags and jars, and does without one that does not. Called by ``pipelines.session`` and by
the main job.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CLASSES = Path(__file__).parent / "spark_classes.txt.gz"
_NAME = "spark-classes"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:class+path=off"
_PACKAGES = ("pyspark", "tidelog")
_TIMEOUT_S = 1800
"""What takes longer is not worth it; on a busy machine much is slow."""
_BACKGROUND = "--background"
_LOWEST_PRIORITY = 19


def archive_options(java_home: Path) -> str:
    """Options for a JVM of ``java_home`` in Spark's home of now: to use the archive, if there is one."""
    archive = _archive(java_home)
    if archive is None or not archive.exists():
        return ""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def make_archive(java_home: Path, spark_home: Path) -> Path | None:
    """Make the archive for a JVM with the jars of ``spark_home``, unless it is there or being made.

    None where there is no place for it, somebody else is at it, or Java cannot make it.
    """
    archive = _archive(java_home)
    if archive is None:
        return None
    with _only_one(archive.with_suffix(".lock")) as alone:
        if not alone:
            return None
        if not archive.exists():
            for old in archive.parent.glob(f"{_NAME}-*.jsa"):
                old.unlink(missing_ok=True)
            _dump(java_home, spark_home, archive)
    return archive if archive.exists() else None


def make_archive_later(java_home: Path) -> None:
    """Have another process make it, with what CPU others leave, unless it is there; does not wait."""
    archive = _archive(java_home)
    if archive is None or archive.exists():
        return
    subprocess.Popen(
        [sys.executable, "-m", __name__, _BACKGROUND],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dump(java_home: Path, spark_home: Path, archive: Path) -> None:
    """Run Java on the list of classes; what it thinks of single ones does not matter."""
    jars = spark_home / "jars"
    # As Spark's launcher has it: an archive is good for the class path that it was made with.
    path = [spark_home / "conf", *sorted(jars.glob("slf4j-api-*.jar")), jars / "*"]
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f"{_NAME}-new-") as scratch:
        classes, new = Path(scratch) / "classes.txt", Path(scratch) / "new.jsa"
        classes.write_bytes(gzip.decompress(CLASSES.read_bytes()))
        command = [
            *(str(java_home / "bin" / "java"), "-Xshare:dump", "-Xlog:disable", "-Xlog:all=off"),
            # Nothing runs for so long here that the second compiler would be worth its time.
            "-XX:TieredStopAtLevel=1",
            *(f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={new}"),
            *("-cp", os.pathsep.join(map(str, path))),
        ]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=_TIMEOUT_S
        )
        if done.returncode == 0 and new.exists():
            new.replace(archive)


@contextmanager
def _only_one(lock: Path) -> Iterator[bool]:
    """Whether this process is the one that makes the archive."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _archive(java_home: Path) -> Path | None:
    directory = _directory()
    if directory is None:
        return None
    parts = "\n".join((str(java_home.resolve()), os.environ.get("SPARK_HOME", ""), *map(_version, _PACKAGES)))
    return directory / f"{_NAME}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}.jsa"


def _directory() -> Path | None:
    """Where archives are: in the virtual environment, or in the user's cache."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    for parent in (
        *([Path(chosen)] if chosen else []),
        *([Path(sys.prefix) / "var" / "cache"] if sys.prefix != sys.base_prefix else []),
    ):
        if (found := _usable(parent / "tidelog")) is not None:
            return found
    try:
        return _usable(Path.home() / ".cache" / "tidelog")
    except RuntimeError:
        # There is no home: containers are often so.
        return None


def _usable(directory: Path) -> Path | None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    # Java's options are separated by spaces.
    return directory if os.access(directory, os.W_OK) and " " not in str(directory) else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def main() -> None:
    """Make the archive for sessions of ``pipelines.session``; without Java, or a place for it, do nothing."""
    from tidelog.java import JavaNotFoundError, java_home
    from tidelog.spark.runtime._spark_home import lean_spark_home

    if _BACKGROUND in sys.argv:
        os.nice(_LOWEST_PRIORITY)
    home = lean_spark_home()
    if home is None:
        return
    os.environ.setdefault("SPARK_HOME", str(home))
    try:
        make_archive(java_home(), Path(os.environ["SPARK_HOME"]))
    except subprocess.TimeoutExpired:
        sys.exit(f"Spark will start without an archive of its classes: Java took more than {_TIMEOUT_S} s")
    except (JavaNotFoundError, OSError) as error:
        sys.exit(f"Spark will start without an archive of its classes: {error}")


if __name__ == "__main__":
    main()
