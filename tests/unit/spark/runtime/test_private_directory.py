"""Directories for their owner alone, and those that are somebody else's matter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.spark.pipelines.status_file import StatusFile
from tidelog.spark.runtime.private_directory import keep_private, make_private
from tidelog_rewards.phones.phone_keys import FILE_NAME, ensure_keys


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_directory_that_is_made_is_for_its_owner_and_its_parents_are_as_usual(tmp_path: Path) -> None:
    make_private(tmp_path / "data" / "pipelines")
    assert (mode(tmp_path / "data"), mode(tmp_path / "data" / "pipelines")) == (0o755, 0o700)


def test_one_that_is_there_is_closed_only_where_its_name_is_ours(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "checkpoints"
    for each in (shared, own):
        each.mkdir()
    make_private(shared)
    keep_private(own)
    assert (mode(shared), mode(own)) == (0o755, 0o700)


def test_what_a_link_leads_to_is_left_as_it_is(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared", tmp_path / "checkpoints"
    shared.mkdir()
    link.symlink_to(shared)
    keep_private(link)
    assert mode(shared) == 0o755


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")


def test_whoever_makes_the_pipelines_directory_makes_it_private(tmp_path: Path) -> None:
    StatusFile(tmp_path / "status first", "collect").close()
    ensure_keys(tmp_path / "keys first" / FILE_NAME)
    assert {mode(each) for each in tmp_path.iterdir()} == {0o700}
