"""Marks the tests that run Spark, so that they can be run one after the other: two Javas and their Python
workers on two cores starve each other, and Spark gives a worker ten seconds to start."""

from __future__ import annotations

import pytest

SPARK_MODULES = (
    "test_spark_cluster",
    "test_spark_docs",
    "test_spark_exactly_once",
    "test_pipeline_",
    "test_demo",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        runs_it = item.path.name.startswith(SPARK_MODULES) and item.path.parent.name != "cli"
        if runs_it or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
