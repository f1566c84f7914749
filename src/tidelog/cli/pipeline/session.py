"""The Spark session of ``tidelog pipeline run`` and ``backfill``, as a person at a terminal wants it.

A signal while Spark starts ends it together with its Java process. What Spark logs goes to a file, and people
are told one sentence that names it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog.cli.failure import Failure
from tidelog.cli.output import remark
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.settings import PipelineSettings

SPARK_LOG = "spark.log"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PID_BYTES = 4


@contextmanager
def spark(
    pipelines: Sequence[Pipeline],
    settings: PipelineSettings,
    master: str,
    spark_options: Mapping[str, str],
) -> Iterator[Any]:
    """A session for the pipelines, with their topics made; stopped at the end."""
    from tidelog.spark.pipelines.session import spark_session
    from tidelog.spark.pipelines.topics import ensure_topics

    with _ended_by_sigterm():
        ensure_topics(settings, (topic for pipeline in pipelines for topic in pipeline.topics))
        remark("starting Spark: this takes some seconds")
        name = f"tidelog pipeline {' '.join(each.name for each in pipelines)}"
        log = (settings.directory / SPARK_LOG).absolute()
        with _naming(log):
            with _java_starts():
                session = spark_session(
                    name, master=master, options={**_log_to(log, master), **spark_options}
                )
            try:
                yield session
            finally:
                _stop(session)


def _stop(session: Any) -> None:
    """Stop it. Where Java has gone by itself, that is why all else failed: then this is what is said."""
    try:
        session.stop()
    except ConnectionError as error:
        raise Failure(
            "Spark's Java process has gone; if it was short of memory (OutOfMemoryError), give it more: "
            "--conf spark.driver.memory=4g"
        ) from error


def _log_to(log: Path, master: str) -> dict[str, str]:
    """What Spark says about errors, pages of it, goes to a file."""
    from tidelog.spark.pipelines.session import LOG_SETTINGS, default_options
    from tidelog.spark.runtime.private_directory import make_private

    make_private(log.parent)
    to_file = LOG_SETTINGS.with_name("log4j2-file.properties")
    usual = default_options(master)[_JAVA_OPTIONS].replace(LOG_SETTINGS.as_uri(), to_file.as_uri())
    return {_JAVA_OPTIONS: f'{usual} "-Dtidelog.spark.log={log}"'}


@contextmanager
def _naming(log: Path) -> Iterator[None]:
    """A failure about which Spark has logged something says where."""
    before = _size(log)
    try:
        yield
    except TidelogError as error:
        if _size(log) == before:
            raise
        raise Failure(f"{error} (more about it in {log})") from error


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


class _Java:
    """Spark's Java process while it is started: PySpark tells nobody which one it is until it answers."""

    pids: int | None = None
    """The end of a pipe into which a process that becomes it writes its number."""

    @classmethod
    def is_forked(cls) -> None:
        """In the child, before exec: a signal to the process group is not to end it within a micro-batch.

        It ignores Ctrl-C already, and ends with this process.
        """
        if cls.pids is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(cls.pids, os.getpid().to_bytes(_PID_BYTES, "little"))


# PySpark forks with a function to run before exec, so Python runs this hook; exec keeps what is ignored.
os.register_at_fork(after_in_child=_Java.is_forked)


@contextmanager
def _java_starts() -> Iterator[None]:
    """Whoever interrupts the start ends Java, too: by itself it would wait for ever."""
    reading, _Java.pids = os.pipe()
    interrupted = True
    try:
        yield
        interrupted = False
    finally:
        os.close(_Java.pids)
        _Java.pids = None
        with os.fdopen(reading, "rb") as pids:
            while interrupted and (pid := pids.read(_PID_BYTES)):
                with suppress(ProcessLookupError):
                    os.kill(int.from_bytes(pid, "little"), signal.SIGKILL)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that what was started is stopped."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
