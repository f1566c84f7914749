"""What is left over of processes that have ended goes; what one works with stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.runtime.scratch_directory import remove_leftovers, scratch_directory
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.detection import alert_job
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

_WORKING = """
import sys
from pathlib import Path
from tidelog.spark.runtime.scratch_directory import scratch_directory
with scratch_directory(Path(sys.argv[1]), "backfill-invite-fraud") as path:
    (path / "numbers").write_text("13812345678")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_it_is_private_and_goes_when_it_is_closed(tmp_path: Path) -> None:
    with scratch_directory(tmp_path, "backfill-invite-fraud") as path:
        assert path.name.startswith("backfill-invite-fraud-")
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "deep").mkdir()
        (path / "deep" / "file").touch()
    assert [*tmp_path.iterdir()] == []


def test_of_a_process_that_was_killed_the_next_one_removes_what_is_left(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        remove_leftovers(tmp_path, "backfill-invite-fraud")
        assert len([*tmp_path.glob("*/numbers")]) == 1
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len([*tmp_path.glob("*/numbers")]) == 1
    with scratch_directory(tmp_path, "backfill-invite-fraud") as path:
        assert {each.name for each in tmp_path.iterdir()} == {path.name, f"{path.name}.lock"}


def test_directories_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "backfill-invite-fraud-abc").mkdir()
    with scratch_directory(tmp_path, "backfill-account-switch") as other:
        remove_leftovers(tmp_path, "backfill-invite-fraud")
        assert other.is_dir()
    assert [each.name for each in tmp_path.iterdir()] == ["backfill-invite-fraud-abc"]


def test_a_backfill_keeps_its_state_there_and_removes_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backfill-invite-fraud-abc").mkdir()
    (tmp_path / "backfill-invite-fraud-abc.lock").touch()
    seen: list[set[str]] = []

    class Ended(Exception):
        pass

    def terms(settings: PipelineSettings, detector: InviteDetector, state: Path) -> None:
        seen.append({each.name for each in tmp_path.iterdir()} - {state.name, f"{state.name}.lock"})
        assert state.is_dir()
        raise Ended

    monkeypatch.setattr(alert_job, "prepare", lambda settings, pipeline: None)
    monkeypatch.setattr(alert_job, "BatchTerms", terms)
    nothing: Any = None
    with pytest.raises(Ended):
        alert_job.backfill_range(
            nothing, PipelineSettings("nowhere:1", tmp_path), nothing, InviteDetector(), nothing
        )
    assert seen == [set()]
    assert [*tmp_path.iterdir()] == []
