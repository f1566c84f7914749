"""The main job's directory, cleared for a fresh run and kept for one that resumes; its keyspace; its port."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterator

from tidelog.errors import TidelogError
from tidelog_rewards.demo.settings import DemoSettings

PREFERRED_PORT = 9092
CONSOLE_PORT = 8080
_HOST = "127.0.0.1"


class DemoError(TidelogError):
    """The main job cannot go on; the text is the sentence that a person reads."""


@contextlib.contextmanager
def prepared(settings: DemoSettings) -> Iterator[None]:
    """The directory, ready and this run's alone until it ends.

    Whatever an earlier run left in it goes, unless this one resumes. The marker is what is locked, so it
    stays in its place.
    """
    directory = settings.directory
    if directory.exists() and not directory.is_dir():
        raise DemoError(f"--dir {directory} is a file: name a directory, or one that does not exist yet")
    if directory.is_dir() and any(directory.iterdir()) and not settings.marker.exists():
        raise DemoError(
            f"--dir {directory} holds files that `tidelog demo` did not write: name an empty directory"
        )
    if settings.resume and not settings.marker.exists():
        raise DemoError(f"--resume: there is no earlier run in {directory}; leave --resume out")
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(settings.marker, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _take(lock, settings)
        if not settings.resume:
            _clear(settings)
        settings.topics_marker.unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def _take(lock: int, settings: DemoSettings) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DemoError(
            f"--dir {settings.directory}: another `tidelog demo` runs there; stop it first, or name another "
            "directory with --dir"
        ) from None


def _clear(settings: DemoSettings) -> None:
    for entry in settings.directory.iterdir():
        if entry == settings.marker:
            entry.write_text("")
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def next_number(settings: DemoSettings) -> int:
    """The number of this run, from 1; a resumed run makes other events than those before."""
    text = settings.marker.read_text() if settings.marker.exists() else ""
    number = int(text) + 1 if text.strip().isdecimal() else 1
    settings.marker.write_text(f"{number}\n")
    return number


def keyspace(settings: DemoSettings) -> str:
    """The keyspace of this run: one of its own for each fresh run, whose ledger must be empty."""
    marker = settings.keyspace_marker
    if settings.cassandra is not None and not marker.exists():
        if settings.resume:
            raise DemoError(
                f"--resume: the run in {settings.directory} had no Cassandra; leave --cassandra out, or "
                "start afresh"
            )
        marker.write_text(f"tidelog_demo_{uuid.uuid4().hex[:8]}\n")
    if settings.cassandra is None and marker.exists():
        raise DemoError("--resume: the tables of that run are in Cassandra; name it with --cassandra")
    return marker.read_text().strip() if settings.cassandra is not None else ""


def choose_port(wanted: int | None, preferred: int = PREFERRED_PORT) -> int:
    """``wanted``, or ``preferred`` where nobody has it, or any that is free."""
    if wanted is not None:
        if not _is_free(wanted):
            raise DemoError(f"--port {wanted} is in use: name another, or leave --port out")
        return wanted
    if _is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
