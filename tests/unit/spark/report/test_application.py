"""Which application a process belongs to: by its local directory, and by the driver's command line."""

from __future__ import annotations

import pytest

from tidelog.spark.report.application import _name, this_application


@pytest.fixture(autouse=True)
def fresh() -> None:
    this_application.cache_clear()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (
            ["java", "SparkSubmit", "--conf", "spark.app.name=large = orders", "pyspark-shell"],
            "large = orders",
        ),
        (["java", "-Dspark.app.name=etl", "Main"], "etl"),
        (["java", "SparkSubmit", "--name", "nightly", "/srv/job.py"], "nightly"),
        (["java", "SparkSubmit", "/srv/job.py", "--verbose"], "job.py"),
        (["java", "Main"], None),
        ([], None),
    ],
)
def test_the_name_is_what_the_driver_was_started_with(words: list[str], name: str | None) -> None:
    assert _name(words) == name


def test_processes_of_one_local_directory_are_of_one_application(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for directory in ("/tmp/blockmgr-1,/data/blockmgr-2", "/tmp/blockmgr-1", "/tmp/blockmgr-3"):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", directory)
        this_application.cache_clear()
        ids.append(this_application().id)
    assert ids[0] == ids[1] != ids[2]
    this_application.cache_clear()
