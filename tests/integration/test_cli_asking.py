"""Commands that ask at the terminal: Ctrl-C ends them at once, wherever they ask."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.integration.command_line import CommandLine

from tidelog import Producer

WAIT_S = 60


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    CommandLine(bootstrap).ok("topics", "create", name)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, b"1").result(WAIT_S)
    return name


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("users add somebody", "Password of somebody"),
        ("topics delete-records TOPIC --all", "Permanently delete these records"),
        ("topics delete TOPIC", "Delete TOPIC"),
    ],
)
def test_one_ctrl_c_at_a_question_ends_the_command(
    bootstrap: str, topic: str, command: str, question: str
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *command.replace("TOPIC", topic).split()],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TIDELOG_BOOTSTRAP": bootstrap, "TERM": "xterm", "NO_COLOR": "1"},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = b""
        while question.replace("TOPIC", topic).encode() not in seen:
            chunk = os.read(ours, 65536)
            assert chunk, seen
            seen += chunk
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(WAIT_S) == 130
        finally:
            process.kill()
            os.close(ours)
    assert topic in CommandLine(bootstrap).ok("topics", "list")
