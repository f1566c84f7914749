"""Records the classes that Spark's JVM loads in the main job, into ``spark_classes.txt.gz``.

    python scripts/record_spark_classes.py

To be run when Spark's version changes, or what the pipelines do has changed much; takes a minute or two.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tidelog.spark.runtime.class_archive import CLASSES

_SECONDS = "60"
_NOT_IN_FILES = re.compile(
    r"^#|source:|\$Proxy\d|^jdk/jfr/internal/handlers/|\$\$Lambda|\$Species_|/GeneratedClass"
)


def main() -> None:
    """Run the main job in a directory of its own, and keep the longest list: the other is the launcher's."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        environment = {
            **os.environ,
            "JAVA_TOOL_OPTIONS": f"-XX:DumpLoadedClassList={directory}/%p.txt",
            # No archive: what is mapped from one is in the list as well, but this is nearer to the source.
            "XDG_CACHE_HOME": str(directory / "cache"),
        }
        command = [sys.executable, "-m", "tidelog", "demo", "--dir", str(directory / "demo")]
        subprocess.run([*command, "--seconds", _SECONDS], env=environment, check=True)
        longest = max(directory.glob("*.txt"), key=lambda each: each.stat().st_size)
        write(longest.read_text(encoding="utf-8").splitlines())


def write(lines: list[str]) -> None:
    """Keep the classes of Java's own loaders that are in files; those of others depend on paths."""
    kept = [line.partition(" id:")[0] for line in lines if not _NOT_IN_FILES.search(line)]
    text = "\n".join(dict.fromkeys(kept)) + "\n"
    CLASSES.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(text.splitlines()):,} lines in {CLASSES}")


if __name__ == "__main__":
    main()
