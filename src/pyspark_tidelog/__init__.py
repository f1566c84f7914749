"""Where PySpark finds the data source ``tidelog`` by itself: no registration, no jar.

PySpark looks through the installed modules for names that begin with ``pyspark_`` and takes their
``DefaultSource``. It does so in every session that uses a Python data source, so nothing but the data
source's own module is loaded here, and that loads readers and writers when they are asked for.
"""

from tidelog.spark.data_source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
