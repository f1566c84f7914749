"""The interpreter that Spark starts: for its workers, and to look for data sources.

Spark's JVM starts ``python3`` from the PATH unless the environment names another interpreter when the JVM
starts. A program that runs as ``.venv/bin/python job.py``, without an activated environment, therefore gets
workers of another installation. :func:`use_this_python` names the running interpreter. Jobs call it before
they create a session.
"""

from __future__ import annotations

import os
import sys

from tidelog.errors import ConfigError

PYSPARK_PYTHON = "PYSPARK_PYTHON"


def use_this_python() -> None:
    """Have Spark start the interpreter that runs this program, unless the environment names another one.

    Call it before the first session is created. It sets ``PYSPARK_PYTHON`` for this process, and keeps a
    value that is already set.

    :raises ConfigError: Spark's JVM is already running, so its interpreter can no longer be chosen.

    Example::

        from pyspark.sql import SparkSession
        from tidelog.spark import use_this_python

        use_this_python()
        spark = SparkSession.builder.getOrCreate()
    """
    if os.environ.get(PYSPARK_PYTHON):
        return
    if _jvm_is_running():
        raise ConfigError("call use_this_python() before the first SparkSession is created")
    os.environ[PYSPARK_PYTHON] = sys.executable


def _jvm_is_running() -> bool:
    # A program that has not imported PySpark has no JVM.
    context = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark")
    return context is not None and getattr(context.SparkContext, "_gateway", None) is not None
