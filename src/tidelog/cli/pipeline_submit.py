"""The file for ``spark-submit``: ``tidelog pipeline run`` and ``backfill`` on the master that it names.

    spark-submit --master spark://cluster:7077 "$(python -m tidelog.cli.pipeline_submit --path)" run earnings

What follows the file are the arguments of ``tidelog pipeline``, without ``--master``.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the command under ``spark-submit``; ``--path`` alone tells where this file is."""
    if arguments == ["--path"]:
        print(Path(__file__).resolve())
        return 0
    from pyspark import SparkConf

    from tidelog.cli import commands

    master = SparkConf().get("spark.master", "local[*]")
    return commands.run(["pipeline", *arguments, "--master", str(master)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
