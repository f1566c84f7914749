"""A package of another author adds a command, a pipeline and a page of the console."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
from tidelog.extensions import Command

GREET = Command("foreign_package.greeting", "Greet a person.")
HOLLOW = Command("foreign_package.nowhere", "Its module does not exist.")
"""
GREETING = """
import typer

EPILOG = "Example: tidelog greet Ada"


def command(name: str) -> None:
    \"\"\"Greet a person.\"\"\"
    print(f"Hello, {name}")
"""
PIPELINE = """
from tidelog.spark.pipelines.pipeline import Pipeline, lazily

COUNT = Pipeline(
    name="count",
    summary="Counts words.",
    inputs=("lines",),
    outputs=("topic counts",),
    start=lazily("foreign_package.counting:start"),
    backfill=lazily("foreign_package.counting:backfill"),
)
"""
PAGE = """
from pathlib import Path

from tidelog.console.api.endpoint import Call, Nothing, reads
from tidelog.console.extension import ConsolePage


@reads("/clusters/{cluster}/words", "Words.", Nothing)
async def words(call: Call, asked: Nothing) -> list[str]:
    return ["one", "two"]


WORDS = ConsolePage(endpoints=(words,), title="Words", script=Path(__file__).with_name("words.js"))
"""
ENTRY_POINTS = """
[tidelog.commands]
greet = foreign_package.commands:GREET
broken = foreign_package.missing:COMMAND
hollow = foreign_package.commands:HOLLOW
[tidelog.pipelines]
count = foreign_package.pipelines:COUNT
[tidelog.console_pages]
words = foreign_package.page:WORDS
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of installed packages, with the foreign one alone."""
    site = tmp_path_factory.mktemp("site")
    package = site / "foreign_package"
    package.mkdir()
    files = {
        "__init__": "",
        "commands": COMMAND,
        "greeting": GREETING,
        "pipelines": PIPELINE,
        "page": PAGE,
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    (package / "words.js").write_text("export function show(view) { view.root.append('words'); }")
    info = site / "foreign_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_command_of_another_package_runs(site: Path) -> None:
    done = run(site, "-m", "tidelog", "greet", "Ada")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada\n", "")


def test_help_lists_it_and_a_broken_package_is_one_line(site: Path) -> None:
    done = run(site, "-m", "tidelog", "--help")
    assert done.returncode == 0
    assert " greet " in done.stdout
    assert " topics " in done.stdout
    line, other = done.stderr.splitlines()
    assert "hollow of package foreign-package cannot be loaded" in other
    assert "broken of package foreign-package cannot be loaded (ModuleNotFoundError: " in line
    assert "pip uninstall foreign-package" in line


@pytest.mark.parametrize("name", ["broken", "hollow"])
def test_a_broken_command_fails_alone_with_one_line(site: Path, name: str) -> None:
    done = run(site, "-m", "tidelog", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "package foreign-package" in done.stderr
    assert run(site, "-m", "tidelog", "topics", "--help").stderr == ""


def test_our_own_commands_look_for_no_packages(site: Path) -> None:
    script = (
        "import sys\nfrom tidelog.cli import commands\nfrom tidelog import extensions\n"
        "commands.build_command('topics')\nprint(extensions.extensions.cache_info().misses)"
    )
    assert run(site, "-c", script).stdout == "0\n"


def test_a_pipeline_of_another_package_is_listed(site: Path) -> None:
    done = run(site, "-m", "tidelog", "pipeline", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "count\tCounts words.\tlines\ttopic counts\n" in done.stdout


def test_a_page_of_another_package_is_served(site: Path) -> None:
    script = (
        "from tidelog.console.extension import installed_pages\n"
        "from tidelog.console.web import all_endpoints\n"
        "print('words' in {each.name for each in all_endpoints()}, installed_pages()['words'].title)"
    )
    done = run(site, "-c", script)
    assert (done.stdout, done.stderr) == ("True Words\n", "")
