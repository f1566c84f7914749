"""The runner of pipelines: a query whose Python was too slow is started again, others have failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline
from tidelog.spark.pipelines.runner import MAX_RESTARTS, PipelineFailed, PipelineRunner, was_too_slow
from tidelog.spark.settings import PipelineSettings

SLOW = """Job aborted: org.apache.spark.SparkException: Python worker failed to connect back.
Caused by: java.net.SocketTimeoutException: Accept timed out"""
BROKEN = "tidelog.errors.KafkaError: MESSAGE_TOO_LARGE: the record is too large"


class Query:
    """A streaming query as the runner sees it."""

    lastProgress = None
    recentProgress = ()
    status = {"isTriggerActive": False}  # noqa: RUF012

    def __init__(self, error: str | None = None) -> None:
        self._error = error
        self.isActive = error is None

    def exception(self) -> Exception | None:
        return None if self._error is None else RuntimeError(self._error)

    def stop(self) -> None:
        self.isActive = False


def pipeline(outcomes: Iterator[Any]) -> Pipeline:
    """Each start takes the next outcome: a query, or an error at once."""

    def start(*_: object) -> Any:
        outcome = next(outcomes)
        if isinstance(outcome, str):
            raise RuntimeError(outcome)
        return outcome

    def backfill(*_: object) -> BackfillReport:
        raise AssertionError

    return Pipeline("earnings", "", (), (), start, backfill)


@pytest.fixture
def settings(tmp_path: Path) -> PipelineSettings:
    return PipelineSettings("", tmp_path)


@pytest.fixture
def told() -> list[tuple[str, str]]:
    return []


def runner(settings: PipelineSettings, told: list[tuple[str, str]], *outcomes: Any) -> PipelineRunner:
    def on_restart(name: str, reason: str) -> None:
        told.append((name, reason))

    return PipelineRunner(None, settings, [pipeline(iter(outcomes))], on_restart)  # type: ignore[arg-type]


def test_a_query_that_was_too_slow_is_started_again(
    settings: PipelineSettings, told: list[tuple[str, str]]
) -> None:
    started = runner(settings, told, SLOW, Query(SLOW), Query())
    assert not started.finished
    assert [each.running for each in started.progress()] == [True]
    assert [name for name, _ in told] == ["earnings", "earnings"]
    started.stop(timeout_s=0)
    assert started.finished


def test_a_query_that_fails_for_another_reason_has_failed(
    settings: PipelineSettings, told: list[tuple[str, str]]
) -> None:
    failed = runner(settings, told, Query(BROKEN), Query())
    assert not failed.finished
    with pytest.raises(PipelineFailed, match="earnings has stopped: MESSAGE_TOO_LARGE: the record is too"):
        failed.progress()
    failed.stop(timeout_s=0)
    with pytest.raises(PipelineFailed, match="earnings cannot start: MESSAGE_TOO_LARGE"):
        runner(settings, told, BROKEN, Query())
    assert told == []


def test_a_machine_that_stays_too_slow_is_told_so(
    settings: PipelineSettings, told: list[tuple[str, str]]
) -> None:
    started = runner(settings, told, *(Query(SLOW) for _ in range(MAX_RESTARTS + 1)))
    for _ in range(MAX_RESTARTS):
        started.progress()
    with pytest.raises(PipelineFailed) as failure:
        started.progress()
    assert was_too_slow(failure.value)
    assert len(told) == MAX_RESTARTS
    started.stop(timeout_s=0)


def test_without_a_listener_nothing_is_started_again(settings: PipelineSettings) -> None:
    alone = PipelineRunner(None, settings, [pipeline(iter([Query(SLOW), Query()]))])  # type: ignore[arg-type]
    with pytest.raises(PipelineFailed):
        alone.progress()
    alone.stop(timeout_s=0)
