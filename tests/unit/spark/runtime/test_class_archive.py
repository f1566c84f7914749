"""Who makes the archive of Spark's classes, where it lies, and when it is used."""

from __future__ import annotations

import fcntl
import gzip
import os
import sys
from pathlib import Path

import pytest

from tidelog.spark.runtime import class_archive
from tidelog.spark.runtime.class_archive import CLASSES, archive_options, make_archive, make_archive_later

FAKE_JAVA = """#!{python}
import sys
options = dict(each.partition("=")[::2] for each in sys.argv if "=" in each)
classes = open(options["-XX:SharedClassListFile"]).read()
open(options["-XX:SharedArchiveFile"], "w").write(f"{{sys.argv[-1]}} {{len(classes.split())}}")
sys.exit({code})
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake_java(tmp_path / "java")


def fake_java(home: Path, code: int = 0) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(FAKE_JAVA.format(python=sys.executable, code=code))
    program.chmod(0o755)
    return home


def test_a_jvm_does_without_until_there_is_one(java: Path, tmp_path: Path) -> None:
    assert archive_options(java) == ""
    archive = make_archive(java, tmp_path / "spark")
    assert archive is not None
    assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in archive_options(java)


def test_it_is_made_of_the_list_and_the_class_path_of_sparks_launcher(java: Path, tmp_path: Path) -> None:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "slf4j-api-2.0.jar").touch()
    archive = make_archive(java, tmp_path / "spark")
    assert archive is not None
    path, count = archive.read_text().split()
    assert path.split(os.pathsep) == [str(jars.parent / "conf"), str(jars / "slf4j-api-2.0.jar"), f"{jars}/*"]
    assert int(count) > 10_000
    assert [each.name for each in archive.parent.iterdir() if each.suffix != ".lock"] == [archive.name]


def test_what_java_could_not_make_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = fake_java(tmp_path / "java", code=1)
    assert make_archive(java, tmp_path / "spark") is None
    assert archive_options(java) == ""


def test_another_java_has_an_archive_of_its_own_which_replaces_the_first(java: Path, tmp_path: Path) -> None:
    first = make_archive(java, tmp_path / "spark")
    second = make_archive(fake_java(tmp_path / "other"), tmp_path / "spark")
    assert first is not None
    assert second is not None
    assert not first.exists()
    assert second.exists()


def test_only_one_process_makes_it(java: Path, tmp_path: Path) -> None:
    archive = class_archive._archive(java)
    assert archive is not None
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert make_archive(java, tmp_path / "spark") is None
    assert make_archive(java, tmp_path / "spark") == archive


def test_nothing_is_started_where_it_is_there(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        "tidelog.spark.runtime.class_archive.subprocess.Popen", lambda command, **_: started.append(command)
    )
    make_archive_later(java)
    assert started == [[sys.executable, "-m", "tidelog.spark.runtime.class_archive", "--background"]]
    archive = class_archive._archive(java)
    assert archive is not None
    archive.touch()
    make_archive_later(java)
    assert len(started) == 1


def test_without_a_directory_to_write_to_there_is_none(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(sys, "prefix", str(file))
    monkeypatch.setenv("HOME", str(file))
    assert archive_options(java) == ""
    assert make_archive(java, tmp_path / "spark") is None


def test_the_list_has_the_classes_of_jvm_and_spark_and_no_files_of_this_machine() -> None:
    lines = gzip.decompress(CLASSES.read_bytes()).decode().splitlines()
    assert any(line.startswith("org/apache/spark/sql/execution/streaming/") for line in lines)
    assert not [line for line in lines if "source:" in line]
