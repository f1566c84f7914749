"""Which Spark application a process of the driver belongs to, as far as such a process can know.

Spark tells its Python processes beside the driver neither the application's name nor its id. All of them have
the application's local directory in their environment, so that host and directory together tell applications
apart; the name is taken from the command line of the Java process above them, where the system shows it: that
of the first application, where a program has several one after the other.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from tidelog.version import __version__

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_PARENTS = 4
_NAMED = "spark.app.name="
_LONGEST = 100


class Application(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Spark application; what is not known is None."""

    id: str
    """Made of host and local directory; the same in all processes of one driver."""
    host: str
    name: str | None = None
    tidelog: str = ""


@functools.cache
def this_application() -> Application:
    """The one that has started this process."""
    host = socket.gethostname()[:_LONGEST]
    directory = os.environ.get(_LOCAL_DIRS, "").split(",")[0] or f"process {os.getpid()}"
    made = hashlib.blake2b(f"{host}\0{directory}".encode(), digest_size=6).hexdigest()
    return Application(made, host, _name(_command_line()), __version__)


def _command_line() -> list[str]:
    """That of the Java process above this one; empty where there is none, or the system does not show it."""
    process = os.getppid()
    for _ in range(_PARENTS):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if Path(words[0]).name == "java":
                return words
            # What follows the command in brackets: state, then the parent.
            process = int(Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return []
    return []


def _name(words: Sequence[str]) -> str | None:
    """The application's name among the arguments of the driver: set in the program, or with ``--name``."""
    for word in words:
        if word.removeprefix("-D").startswith(_NAMED):
            return word.partition("=")[2][:_LONGEST]
    for flag, word in pairwise(words):
        if flag == "--name":
            return word[:_LONGEST]
    program = next((word for word in reversed(words) if word.endswith(".py")), None)
    return None if program is None else Path(program).name[:_LONGEST]
