"""What holds for all tests: property tests try the same examples each time, those that run Spark are marked,
and failures are named when they happen.

A search that draws anew each time belongs into a session of its own (``TIDELOG_HYPOTHESIS=random``), where
somebody looks at what it finds, not into a check that others wait for. Spark's tests are run one after the
other: two Javas and their Python workers on two cores starve each other, and Spark gives a worker ten
seconds to start.

Files of tests lie in memory where there is room: a broker that stops syncs seven files per partition, and no
test is about how long a disk takes for that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# How long it takes to draw examples depends on what else the machine does.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Other examples each time; those that have failed are kept, and tried first.
settings.register_profile(
    "nightly",
    derandomize=False,
    deadline=None,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "nightly"),
    suppress_health_check=[HealthCheck.too_slow],
)
_PROFILE = os.environ.get("TIDELOG_HYPOTHESIS", "repeatable")
if _PROFILE != "random":
    settings.load_profile(_PROFILE)

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

UNMARKED_SPARK = Path(__file__).parent / "rigs" / "unmarked_spark"
"""A SPARK_HOME whose ``spark-submit`` refuses to start."""


class _FailuresAtOnce:
    """Names a failure where it happens: a run that is cut short prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"FAILED ({report.when}) {report.nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only marked tests start Spark, also in the processes that they start."""
    with pytest.MonkeyPatch.context() as environment:
        if item.get_closest_marker("spark") is None:
            environment.setenv("SPARK_HOME", str(UNMARKED_SPARK))
        return (yield)
