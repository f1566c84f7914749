"""The main job's directory, cleared for a fresh run and kept for one that resumes; its keyspace; its port."""

from __future__ import annotations

import shutil
import socket
import uuid

from tidelog.errors import TidelogError
from tidelog.pipelines.demo.settings import DemoSettings

PREFERRED_PORT = 9092
CONSOLE_PORT = 8080
_HOST = "127.0.0.1"


class DemoError(TidelogError):
    """The main job cannot go on; the text is the sentence that a person reads."""


def prepare(settings: DemoSettings) -> None:
    """Make the directory ready; whatever an earlier run left in it goes, unless this one resumes."""
    directory = settings.directory
    if directory.exists() and not directory.is_dir():
        raise DemoError(f"--dir {directory} is a file: name a directory, or one that does not exist yet")
    if directory.is_dir() and any(directory.iterdir()) and not settings.marker.exists():
        raise DemoError(
            f"--dir {directory} holds files that `tidelog demo` did not write: name an empty directory"
        )
    if settings.resume and not settings.marker.exists():
        raise DemoError(f"--resume: there is no earlier run in {directory}; leave --resume out")
    if not settings.resume and directory.is_dir():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    settings.marker.touch()
    settings.topics_marker.unlink(missing_ok=True)


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
