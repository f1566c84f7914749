"""Spark's Python processes, forked: they are what Python would have been; the server ends with its parent."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_rewards.demo import fork_client

pytest.importorskip("pyspark")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are no such forks elsewhere")

WAIT_S = 60.0
PARENT = """
import sys
from tidelog_rewards.demo.fork_server import serve_forks

print(serve_forks(), flush=True)
sys.stdin.read()
"""
PROGRAM = """
import os, sys

print(os.getppid(), os.environ["COLOUR"], os.getcwd(), sys.argv[1:], "pyspark" in sys.modules)
sys.exit(int(sys.stdin.read()))
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], WAIT_S)[0])


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "COLOUR": "green", "PYTHONPATH": str(directory)}
    return subprocess.run(
        [*command, "-m", "program", "some", "words"],
        cwd=directory,
        env=environment,
        input="7",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_a_forked_process_is_what_python_would_have_been(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert parent.stdout is not None
    command = parent.stdout.readline().strip()
    found = run([command], tmp_path)
    assert found.returncode == 7, found.stderr
    server, *rest = found.stdout.split(maxsplit=1)
    assert Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1] == str(parent.pid)
    assert rest == [f"green {tmp_path} ['some', 'words'] True\n"]


def test_python_itself_runs_where_there_is_no_server(tmp_path: Path) -> None:
    words = [sys.executable, "-ISE", fork_client.__file__, str(tmp_path / "nobody")]
    found = run(words, tmp_path)
    assert found.returncode == 7, found.stderr
    assert found.stdout.endswith(f"green {tmp_path} ['some', 'words'] False\n")
    plain = subprocess.run(
        [*words, "-c", "print(6 * 7)"], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert plain.stdout == "42\n"


def test_the_server_ends_with_the_process_that_started_it_and_takes_the_command_with_it(
    parent: subprocess.Popen[str],
) -> None:
    assert parent.stdout is not None
    command = Path(parent.stdout.readline().strip())
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    handle = os.pidfd_open(int(child))
    try:
        parent.kill()
        assert ended(handle)
    finally:
        os.close(handle)
    assert not command.parent.exists()
