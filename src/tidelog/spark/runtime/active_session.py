"""Makes a session the active one of the thread that is about to write with it.

A write looks for Python's data sources in the active session of the calling thread, and a thread that Python
has started has none: there Spark says that it fails to find the data source. Reading does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_active(session: SparkSession) -> None:
    """Have Spark find the data sources of the session in this thread."""
    of_class = type(session)._get_j_spark_session_class(session._jvm)
    of_class.setActiveSession(session._jsparkSession)
