"""The directory of the main job: cleared for a fresh run, and only where no other run uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_rewards.demo import directory
from tidelog_rewards.demo.directory import DemoError
from tidelog_rewards.demo.settings import DemoSettings

HOLDER = """
import sys
from pathlib import Path
from tidelog_rewards.demo import directory
from tidelog_rewards.demo.settings import DemoSettings
with directory.prepared(DemoSettings(Path(sys.argv[1]), rate=1)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("resume", [False, True])
def test_a_directory_in_use_is_left_alone(tmp_path: Path, resume: bool) -> None:
    first = DemoSettings(tmp_path / "demo", rate=1)
    second = DemoSettings(tmp_path / "demo", rate=1, resume=resume)
    with directory.prepared(first):
        first.broker_data.mkdir()
        (first.broker_data / "00000000000000000000.log").touch()
        first.topics_marker.touch()
        with pytest.raises(DemoError, match="stop it first, or name another directory with --dir"):
            directory.prepared(second).__enter__()
        assert (first.broker_data / "00000000000000000000.log").exists()
        assert first.topics_marker.exists()


def test_a_run_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "demo")]
    wanted = DemoSettings(tmp_path / "demo", rate=1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DemoError, match="another `tidelog demo` runs there"):
            directory.prepared(wanted).__enter__()
        holder.kill()
    with directory.prepared(wanted):
        pass


def test_a_fresh_run_finds_nothing_of_the_last_one_and_a_resumed_one_all(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    fresh = DemoSettings(tmp_path / "demo", rate=1)
    with directory.prepared(fresh):
        assert directory.next_number(fresh) == 1
        fresh.broker_data.mkdir()
        fresh.truth(1).touch()
        (fresh.directory / "link").symlink_to(elsewhere)
    resumed = DemoSettings(tmp_path / "demo", rate=1, resume=True)
    with directory.prepared(resumed):
        assert directory.next_number(resumed) == 2
        assert resumed.truth(1).exists()
    with directory.prepared(fresh):
        assert list(fresh.directory.iterdir()) == [fresh.marker]
        assert directory.next_number(fresh) == 1
    assert (elsewhere / "kept").exists()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(DemoError, match="holds files that `tidelog demo` did not write"):
        directory.prepared(DemoSettings(tmp_path, rate=1)).__enter__()
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]
