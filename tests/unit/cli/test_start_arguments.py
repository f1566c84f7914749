"""The command line of `tidelog start`: plain arguments are read by hand, and mean what argparse says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.cli import start

NAMES = ["--listen", "--advertise", "--data-dir", "--set", "--log-format", "--log-level", "--welcome"]
WORDS = [
    *NAMES,
    "text",
    "json",
    "INFO",
    "DEBUG",
    "a=b",
    "c=-1",
    "host:9092",
    "server.properties",
    "",
    " ",
    "ä",
]
ODD = [
    "-h",
    "--help",
    "--",
    "-",
    "-1",
    "-x",
    "--lis",
    "--listen=x",
    "--set=",
    "--log-level=INFO",
    "- x",
    "@file",
]


@settings(deadline=None)
@given(arguments=st.lists(st.sampled_from([*WORDS, *ODD]), max_size=7))
def test_plain_arguments_mean_what_argparse_takes_them_for(arguments: list[str]) -> None:
    plain = start.parse_plain(arguments)
    if plain is not None:
        assert vars(plain) == vars(start._parser().parse_args(arguments))


def test_what_people_write_is_plain() -> None:
    options = start.parse_plain(
        ["server.properties", "--listen", "127.0.0.1:0", "--data-dir", "data", "--set", "a=b", "--set", "c=d"]
    )
    assert options is not None
    assert (options.properties, options.listen, options.data_dir) == (
        "server.properties",
        "127.0.0.1:0",
        "data",
    )
    assert options.set == ["a=b", "c=d"]
    assert (options.log_format, options.log_level, options.welcome) == ("text", "INFO", False)


def test_argparse_reads_what_is_not_plain() -> None:
    assert start.parse(["--listen=127.0.0.1:1", "--log-level=DEBUG"]).listen == "127.0.0.1:1"


@pytest.mark.parametrize("arguments", [["--lisen", "x"], ["a", "b"], ["--listen"], ["--log-level", "LOUD"]])
def test_a_wrong_command_line_is_refused_by_argparse(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        start.parse(arguments)
    assert ended.value.code == 2
    assert "usage: tidelog start" in capsys.readouterr().err


def test_a_start_imports_no_command_line_library() -> None:
    code = (
        "import sys, tidelog.cli.main, tidelog.cli.start, tidelog.broker.process\n"
        "tidelog.cli.start.parse(['--listen', 'x:1', '--set', 'a=b'])\n"
        "late = {'argparse', 'typer', 'rich', 'kazoo', 'tidelog.broker.coordination.coordinators'}\n"
        "print(*sorted(late & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == []
