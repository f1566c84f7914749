"""The lock and the note of a running pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import TidelogError
from tidelog.spark.pipelines.runner import failure_sentence
from tidelog.spark.pipelines.status_file import (
    RunStatus,
    StatusFile,
    is_running,
    read_status,
    status_path,
)


def test_a_pipeline_runs_while_its_note_book_is_open(tmp_path: Path) -> None:
    assert not is_running(tmp_path, "earnings")
    book = StatusFile(tmp_path, "earnings")
    assert is_running(tmp_path, "earnings")
    assert not is_running(tmp_path, "collect")
    book.close()
    assert not is_running(tmp_path, "earnings")


def test_a_second_copy_on_the_same_directory_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    book = StatusFile(tmp_path, "earnings")
    book.write(RunStatus(pid=4711, started_at_ms=1, updated_at_ms=2))
    with pytest.raises(
        TidelogError, match=r"earnings is already running on .* \(process 4711\); stop it first"
    ):
        StatusFile(tmp_path, "earnings")
    book.close()
    StatusFile(tmp_path, "earnings").close()


def test_the_note_is_what_was_last_written(tmp_path: Path) -> None:
    assert read_status(tmp_path, "earnings") is None
    book = StatusFile(tmp_path, "earnings")
    book.write(RunStatus(1, 2, 3))
    book.write(RunStatus(1, 2, 4, batch_id=7, rows_in=100, rows_per_second=12.5))
    book.close()
    assert read_status(tmp_path, "earnings") == RunStatus(1, 2, 4, 7, 100, 12.5)


def test_a_damaged_note_is_no_note(tmp_path: Path) -> None:
    StatusFile(tmp_path, "earnings").close()
    status_path(tmp_path, "earnings").write_bytes(b"{")
    assert read_status(tmp_path, "earnings") is None


FROM_A_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    read()
tidelog.errors.ConfigError: option startingOffsets is not JSON
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
	at java.base/java.lang.Thread.run(Thread.java:840)
SQLSTATE: XXKST"""

FROM_JAVA = """[STREAM_FAILED] Query terminated with exception
org.apache.spark.SparkException: Job aborted.
	at org.apache.spark.Somewhere(Somewhere.scala:1)
Caused by: java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)"""


ON_ONE_LINE = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception \
was thrown from the Python worker: tidelog.errors.KafkaError: MESSAGE_TOO_LARGE: the record is too large
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ==="""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ON_ONE_LINE, "MESSAGE_TOO_LARGE: the record is too large"),
        (FROM_A_WORKER, "option startingOffsets is not JSON"),
        (FROM_JAVA, "No space left on device"),
        ("something odd.", "something odd"),
    ],
)
def test_of_sparks_many_lines_the_innermost_error_is_told(text: str, sentence: str) -> None:
    assert failure_sentence(RuntimeError(text)) == sentence
