"""When Spark's JVM records its classes, and when it uses what an earlier one has recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.spark.class_archive import archive_options, seen_enough

WHOLE = (0xF00BABA8).to_bytes(4, "little") + b"classes"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "java"


def recorded(options: str) -> Path:
    (path,) = [each.partition("=")[2] for each in options.split() if each.startswith("-XX:ArchiveClasses")]
    return Path(path)


def test_nothing_is_recorded_unless_asked_for(java: Path) -> None:
    assert archive_options(java) == ""


def test_what_a_run_that_saw_enough_recorded_is_used_from_then_on(java: Path) -> None:
    new = recorded(archive_options(java, record=True))
    seen_enough(java)
    new.write_bytes(WHOLE)
    for record in (True, False):
        options = archive_options(java, record=record)
        assert f"-XX:SharedArchiveFile={new.with_suffix('.jsa')}" in options
        assert "ArchiveClassesAtExit" not in options


def test_what_a_run_that_ended_early_recorded_is_recorded_again(java: Path) -> None:
    recorded(archive_options(java, record=True)).write_bytes(WHOLE)
    assert archive_options(java) == ""
    assert not recorded(archive_options(java, record=True)).exists()


@pytest.mark.parametrize("content", [None, b"", bytes(4096)])
def test_an_archive_that_is_not_whole_is_not_used(java: Path, content: bytes | None) -> None:
    new = recorded(archive_options(java, record=True))
    seen_enough(java)
    if content is not None:
        new.write_bytes(content)
    assert archive_options(java) == ""


def test_another_java_has_an_archive_of_its_own(java: Path) -> None:
    assert recorded(archive_options(java, record=True)) != recorded(
        archive_options(java.with_name("other"), record=True)
    )


def test_without_a_directory_to_write_to_there_is_none(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java.write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(java))
    assert archive_options(java, record=True) == ""
    seen_enough(java)
