"""A home for Spark without its zipped Python: workers then import PySpark as it is installed.

Spark puts ``python/lib/pyspark.zip`` of its home on every Python worker's path, where Python finds no
compiled modules: each worker spends most of a second compiling PySpark, and workers are started for
planning, reading, writing and committing. A directory of links to everything in the installed package but
``python/`` lets them find the compiled package instead. Set before the JVM starts; ``pipelines.session``
and tests do.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

LEFT_OUT = frozenset({"python", "work", "__pycache__"})


def lean_spark_home(parent: Path | None = None) -> Path | None:
    """The directory to give Spark as SPARK_HOME; None where PySpark is not installed, or links cannot be
    made.

    ``parent`` is where it is made, by default the directory of temporary files.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    name = f"tidelog-spark-{os.getuid()}-{hashlib.sha256(str(package).encode()).hexdigest()[:12]}"
    home = (parent or Path(tempfile.gettempdir())) / name
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        for entry in package.iterdir():
            link = home / entry.name
            if entry.name not in LEFT_OUT and entry.is_dir() and not link.is_symlink():
                _link(link, entry)
    except OSError:
        # Spark does without, only slower.
        return None
    return home


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except FileExistsError:
        # Another process has made it at the same time.
        return
