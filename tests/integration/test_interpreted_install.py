"""An installation without compiled modules is reported once per process, by clients as by the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.records.compiled import REMEDY
from tidelog.records.record_codec import COMPILED

# Finds the sources of Tidelog where the installation has compiled modules, which come first otherwise.
SOURCES_ONLY = """
import sys
from importlib.machinery import FileFinder, SourceFileLoader

class Sources:
    @staticmethod
    def find_spec(name, path, target=None):
        if not name.startswith("tidelog."):
            return None
        found = (FileFinder(each, (SourceFileLoader, [".py"])).find_spec(name) for each in path)
        return next((spec for spec in found if spec is not None), None)

sys.meta_path.insert(0, Sources)
"""
CLIENTS = """
from tidelog import Consumer, Producer
for _ in range(2):
    Consumer(bootstrap_servers="127.0.0.1:1").close()
    Producer(bootstrap_servers="127.0.0.1:1").close(0)
"""
BROKER = """
from tidelog.cli.start import main
import os, signal, threading
from tidelog.broker import process

greet = process._greet
def greet_and_stop(*arguments):
    greet(*arguments)
    os.kill(os.getpid(), signal.SIGTERM)
process._greet = greet_and_stop
main(["--listen", "127.0.0.1:0", "--data-dir", sys.argv[1], "--log-level", "WARNING"])
"""


def run(program: str, *arguments: str) -> list[str]:
    """What a program says on stderr about compiled modules, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "compiled modules" in line]


def test_the_first_client_reports_it_once_with_the_remedy() -> None:
    (line,) = run(SOURCES_ONLY + CLIENTS)
    assert line.startswith("Tidelog is installed without its compiled modules")
    assert line.endswith(REMEDY)


def test_the_broker_reports_it_once_with_the_same_remedy(tmp_path: Path) -> None:
    (line,) = run(SOURCES_ONLY + BROKER, str(tmp_path / "data"))
    assert REMEDY in line


@pytest.mark.skipif(not COMPILED, reason="this installation has no compiled modules")
def test_an_installation_with_them_reports_nothing() -> None:
    assert run(CLIENTS) == []
