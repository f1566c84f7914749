"""The process that Spark's Python workers are forked from, with everything loaded that pipelines use.

Spark's own daemon loads nothing before it forks, so that each worker spends most of a second on imports, and
a session with five queries starts a dozen workers. Spark runs this module by the option
``spark.python.daemon.module`` (``spark.pipelines.session`` sets it). Nothing that is loaded here may start a
thread, which a fork would not have; that of Arrow's allocator, jemalloc, is made for forks.
"""

from __future__ import annotations

import gc
import importlib

from tidelog.spark.pipelines import registry

PRELOADED = (
    "pyspark.worker",
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "tidelog.spark.data_source",
    "tidelog.spark.read._stream_reader",
    "tidelog.spark.read._range_reader",
    "tidelog.spark.sinks.record_sink",
)

# Tasks hold batches of hundreds of thousands of rows, none of them in circles: with Python's own thresholds
# (700, 10, 10) a tenth of their time goes into looking for circles in what lives.
GC_THRESHOLDS = (50_000, 20, 50)


def preload() -> None:
    """Load what workers use; pages of frozen objects stay shared with the workers."""
    for name in (*PRELOADED, *_preloaded_by_pipelines()):
        importlib.import_module(name)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()


def _preloaded_by_pipelines() -> list[str]:
    return [name for pipeline in registry.installed().values() for name in pipeline.preload]


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
