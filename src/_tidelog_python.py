"""Has Spark find this Python where an environment was not activated; ``tidelog-python.pth`` calls it.

A program that is run as ``.venv/bin/python job.py`` starts Spark's JVM, which looks for data sources with the
``python3`` of the PATH: another installation, without Tidelog. ``PYSPARK_DRIVER_PYTHON`` names one to take.

It is set only where this is a virtual environment, whose ``python3`` is not the first on the PATH, and nobody
has chosen a Python or a Spark: what works without it is left alone. Runs whenever Python starts in the
environment, so it loads nothing.
"""

from __future__ import annotations

import os
import sys

CHOICES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


def choose() -> None:
    """Set ``PYSPARK_DRIVER_PYTHON`` where Spark would take another Python than this one."""
    if sys.prefix == sys.base_prefix or any(name in os.environ for name in CHOICES):
        return
    own = os.path.realpath(os.path.dirname(sys.executable))
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isfile(os.path.join(directory, "python3")):
            if os.path.realpath(directory) == own:
                return
            break
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
