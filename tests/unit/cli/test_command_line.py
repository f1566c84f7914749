"""Command lines without a broker: usage, exit codes, sentences."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

import tidelog as package
from tidelog.cli import failure
from tidelog.cli.commands import COMMANDS, build_app
from tidelog.cli.records.start_offsets import EARLIEST, LATEST, StartOffset, parse_start_offset
from tidelog.cli.values import parse_time_ms
from tidelog.errors import ErrorCode, KafkaError

Tidelog = Callable[..., tuple[int, str, str]]
DEAD = "127.0.0.1:1"


def test_the_version_is_printed_with_and_without_typer(tidelog: Tidelog) -> None:
    assert tidelog("--version") == (0, f"tidelog {package.__version__}\n", "")
    done = subprocess.run([sys.executable, "-m", "tidelog", "--version"], capture_output=True, check=True)
    assert done.stdout.decode() == f"tidelog {package.__version__}\n"


def test_help_lists_every_command(tidelog: Tidelog) -> None:
    code, out, _ = tidelog("--help")
    assert code == 0
    places = [out.index(f" {name} ") for name in ("start", *COMMANDS)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create"),
        ("topics", "list"),
        ("topics", "describe"),
        ("topics", "alter"),
        ("topics", "delete"),
        ("topics", "delete-records"),
        ("produce",),
        ("consume",),
        ("groups", "list"),
        ("groups", "describe"),
        ("groups", "delete"),
        ("groups", "delete-offsets"),
        ("groups", "reset-offsets"),
        ("groups", "import-zookeeper"),
        ("cluster", "start"),
        ("cluster", "describe"),
        ("partitions", "reassign"),
        ("partitions", "elect"),
        ("partitions", "list-reassignments"),
        ("zookeeper", "start"),
        ("transactions", "list"),
        ("transactions", "describe"),
        ("transactions", "describe-producers"),
        ("transactions", "find-hanging"),
        ("transactions", "abort"),
        ("top",),
        ("perf", "produce"),
        ("perf", "consume"),
        ("perf", "latency"),
        ("features", "describe"),
        ("features", "upgrade"),
        ("features", "downgrade"),
        ("configs", "list"),
        ("configs", "describe"),
        ("configs", "alter"),
        ("log-dirs", "describe"),
        ("log-dirs", "move"),
        ("log", "dump"),
        ("log", "verify"),
    ],
)
def test_every_command_has_help_with_an_example(tidelog: Tidelog, command: tuple[str, ...]) -> None:
    code, out, _ = tidelog(*command, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"tidelog {' '.join(command)}" in out.split("Examples:")[1]


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path != ("start",):
        yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, (*path, name))


def _squeezed(text: str) -> str:
    """Without the frames and spaces that depend on the width of the terminal."""
    return re.sub(r"[\s│╭╮╰╯─]", "", text)


def test_help_pages_show_every_text_as_it_is_written(
    tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wide enough for every table: a column that wraps would mix its words with its neighbour's.
    monkeypatch.setenv("COLUMNS", "400")
    for path, written in _commands(typer.main.get_command(build_app())):
        code, out, _ = tidelog(*path, "--help")
        assert code == 0
        for each in (written, *written.params):
            for text in (getattr(each, "help", None), getattr(each, "epilog", None)):
                assert _squeezed(text or "") in _squeezed(out), (path, text)


def test_what_is_to_be_installed_is_named_with_its_extra(tidelog: Tidelog) -> None:
    code, out, _ = tidelog("zookeeper", "start", "--help")
    assert code == 0
    assert "pip install 'tidelog[spark]'" in out


def test_paragraphs_of_help_end_their_lines_where_the_terminal_does(tidelog: Tidelog) -> None:
    _, out, _ = tidelog("zookeeper", "start", "--help")
    assert re.search(r"They\s+listen on 127.0.0.1", out), out


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (["topix"], "'topics'?"),
        (["topics", "lst"], "Did you mean 'list'?"),
        (["topics", "create"], "Missing argument 'TOPIC'"),
        (["topics", "create", "a", "--partitons", "3"], "--partitions"),
        (["topics", "create", "a", "--partitions", "0"], "'--partitions'"),
        (["topics", "create", "a", "-c", "retention.ms"], "NAME=VALUE"),
        (["topics", "alter", "a"], "--partitions, --config or --delete-config"),
        (["configs", "describe"], "--topic NAME, --broker ID"),
        (["configs", "alter", "-t", "a"], "--set, --delete, --append or --subtract"),
        (["produce", "a", "--acks", "2"], "0, 1 or all"),
        (["produce", "a", "--codec", "brotli"], "zstd"),
        (["produce", "a", "--timestamp", "yesterday"], "2024-05-01T12:00:00Z"),
        (["produce", "a", "--json", "--key-separator", ":"], "--key-separator"),
        (["produce", "a", "--key-separator", ""], "must not be empty"),
        (["consume", "a", "-o", "somewhere"], "earliest, latest, 42, -10"),
        (["consume", "a", "--from-beginning", "-o", "3"], "not both"),
        (["groups", "list", "--state", "busy"], "Stable, Empty"),
        (["groups", "list", "--type", "kafka"], "Classic, Consumer"),
        (["groups", "describe"], "--all"),
        (["groups", "describe", "a", "--all"], "--all"),
        (["groups", "describe", "a", "--members", "--state"], "not both"),
        (["groups", "delete-offsets", "a"], "--topic"),
        (["groups", "reset-offsets", "a", "--all-topics"], "--to-earliest"),
        (["groups", "reset-offsets", "a", "--all-topics", "--to-latest", "--to-current"], "conflicting"),
        (["groups", "reset-offsets", "a", "--to-latest"], "--all-topics"),
        (["groups", "reset-offsets", "a", "-t", "b", "--all-topics", "--to-latest"], "--topic"),
        (["groups", "reset-offsets", "a", "-t", "b", "--to-datetime", "noon"], "2024-05-01T12:00:00Z"),
        (["groups", "reset-offsets", "a", "-t", "b", "--by-duration", "2h"], "P1DT2H"),
        (["groups", "reset-offsets", "a", "-t", "b", "--to-offset", "-3"], "'--to-offset'"),
        (["transactions", "list", "--state", "open"], "Ongoing"),
        (["transactions", "list", "--pattern", "("], "invalid --pattern"),
        (["transactions", "list", "--longer-than", "soon"], "PT30M"),
        (["transactions", "find-hanging", "-p", "0"], "requires --topic"),
        (["transactions", "abort", "-t", "a"], "--partition"),
        (["transactions", "abort", "-t", "a", "-p", "0"], "--start-offset"),
        (["transactions", "abort", "-t", "a", "-p", "0", "--producer-id", "3"], "--coordinator-epoch"),
        (
            ["transactions", "abort", "-t", "a", "-p", "0", "--start-offset", "1", "--producer-id", "3"],
            "omit the --producer options",
        ),
        (["transactions", "abort", "--transactional-id", "a", "-t", "b"], "is sufficient"),
        (["log", "dump", "a.log", "--offsets-decoder", "--transaction-log-decoder"], "not both"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    tidelog: Tidelog, arguments: list[str], mend: str
) -> None:
    code, out, err = tidelog(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert mend in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "delete", "a"],
        ["consume", "a"],
        ["configs", "describe", "-t", "a"],
        ["groups", "list"],
        ["groups", "describe", "a"],
        ["groups", "delete", "a"],
        ["groups", "reset-offsets", "a", "--all-topics", "--to-latest"],
        ["transactions", "list"],
        ["transactions", "find-hanging"],
        ["transactions", "abort", "--transactional-id", "a"],
    ],
)
def test_without_a_broker_every_command_says_how_to_start_one(tidelog: Tidelog, arguments: list[str]) -> None:
    code, out, err = tidelog(*arguments, "-b", DEAD)
    assert (code, out) == (1, "")
    assert err == (
        f"error: cannot connect to {DEAD}: connection refused; is the broker running? try `tidelog start`\n"
    )


def test_the_environment_names_the_broker(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:2")
    assert "127.0.0.1:2" in tidelog("topics", "list")[2]


def test_starting_a_broker_imports_neither_typer_nor_rich() -> None:
    code = (
        "import sys; sys.argv = ['tidelog', 'start', '--help']\n"
        "from tidelog.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'typer', 'rich', 'tidelog.client._network.cluster'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=os.environ)
    assert done.stderr.decode() == "set()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("42", StartOffset(offset=42)),
        ("-10", StartOffset(last=10)),
        ("@1700000000000", StartOffset(time_ms=1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", StartOffset(time_ms=1_700_000_000_000)),
        ("@2023-11-14T23:13:20+01:00", StartOffset(time_ms=1_700_000_000_000)),
    ],
)
def test_where_to_start_reading(text: str, expected: StartOffset) -> None:
    assert parse_start_offset(text) == expected


def test_a_time_without_zone_is_utc() -> None:
    assert parse_time_ms("1970-01-01 00:00:01.5", "--timestamp") == 1500


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists."),
            "Topic 'a' already exists (TOPIC_ALREADY_EXISTS): choose another name or pass --if-not-exists",
        ),
        (KafkaError(ErrorCode.INVALID_CONFIG, "no"), "no (INVALID_CONFIG)"),
        (
            KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "partition a-0: message too large"),
            "partition a-0: message too large: send smaller records or raise max.message.bytes of the topic",
        ),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), "x.txt: no such file or directory"),
        (failure.Failure("it is so."), "it is so"),
    ],
)
def test_errors_become_one_sentence_with_the_mend(error: Exception, expected: str) -> None:
    assert failure.sentence(error) == expected


def test_a_bug_of_our_own_is_a_sentence_too_unless_somebody_debugs() -> None:
    assert "TIDELOG_DEBUG=1" in failure.sentence(ZeroDivisionError("division by zero"))


def _reader_has_gone(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose stdout is a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments], stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize("arguments", [("--help",), ("topics", "create", "--help"), ("pipeline", "list")])
def test_a_reader_that_has_gone_is_no_failure(arguments: tuple[str, ...]) -> None:
    done = _reader_has_gone(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_as_good_as_none(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m tidelog pipeline list {closed}'],
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"earnings" in done.stdout) == (" >&-" not in f" {closed}")
