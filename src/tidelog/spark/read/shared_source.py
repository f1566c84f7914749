"""Lets several streaming queries of one session start at the same time.

Spark finds a Python data source once for a JVM and shares what it found among all queries, with a map of
environment variables that is not made for several threads. Every query that starts puts the same names into
it; two at once can spoil it for good, after which no task of any query can be sent out ("Illegal size 5 of
collection, expected 6"). With the names in it beforehand they only replace values, which is harmless.

Called by who starts several pipelines. A test holds :data:`VARIABLES` against what a query leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "tidelog"
VARIABLES = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME")
"""What Spark sets for the Python process of a streaming source, before it starts one."""


def share_source(session: SparkSession) -> None:
    """Make the data source ready for queries that start side by side; called by one thread, before them."""
    environment = source_environment(session)
    for name in VARIABLES:
        environment.putIfAbsent(name, "")


def source_environment(session: SparkSession) -> Any:
    """The map that all queries share."""
    manager = session._jsparkSession.sessionState().dataSourceManager()
    return manager.lookupDataSource(FORMAT).dataSourceCls().envVars()
