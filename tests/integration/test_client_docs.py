"""Every Python program of the documentation runs, in order, against one broker, and prints what it says.

A ``python`` block is a whole program: a child process runs it, or pytest if it defines tests. The ``text``
block that follows it, if one does, is what it must print.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.testing import broker

ROOT = Path(__file__).parents[2]
SERVERS = "127.0.0.1:9092"
PLUGIN = "tidelog.testing.pytest_plugin"
TIMEOUT_S = 90
# In the order in which they are read: guides and reference use the topics of the tutorial.
CLIENT_PAGES = ["docs/tutorials/client.md", "docs/how-to/client.md", "docs/reference/client.md"]

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(\n```text\n(?P<output>.*?)^```\n)?", re.M | re.S)
_HEADING = re.compile(r"^#+ (.*)$", re.M)


class Example(NamedTuple):
    heading: str
    code: str
    output: str | None

    @property
    def is_test(self) -> bool:
        return "def test_" in self.code


def examples(document: str) -> list[Example]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Example(_HEADING.findall(text[: block.start()])[-1], block["code"], block["output"])
        for block in _BLOCK.finditer(text)
    ]


def run(example: Example, servers: str, directory: Path) -> str:
    program = directory / ("test_example.py" if example.is_test else "example.py")
    program.write_text(example.code.replace(SERVERS, servers), encoding="utf-8")
    command = [sys.executable, program.name]
    if example.is_test:
        known = {each.value for each in importlib.metadata.entry_points(group="pytest11")}
        named = [] if PLUGIN in known else ["-p", PLUGIN]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, program.name]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, ""), f"{example.heading}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("documents", [["README.md"], CLIENT_PAGES], ids=["readme", "client"])
def test_every_example_runs_and_prints_what_it_says(documents: list[str], tmp_path: Path) -> None:
    with broker() as running:
        for document in documents:
            found = examples(document)
            assert found
            for example in found:
                printed = run(example, running.bootstrap_servers, tmp_path)
                if example.output is not None:
                    assert printed == example.output, f"{document}, {example.heading}"


def test_the_tutorial_has_an_example_of_every_kind() -> None:
    opening = examples(CLIENT_PAGES[0])
    assert [each.heading for each in opening] == [
        "Produce",
        "Consume",
        "asyncio",
        "Transactions",
        "Message streams",
        "Arrow",
        "Administer",
        "Test",
        "Test",
    ]
    lines = [[line for line in each.code.splitlines() if line] for each in opening]
    assert max(map(len, lines)) <= 16
