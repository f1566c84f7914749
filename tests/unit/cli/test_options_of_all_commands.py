"""Options mean the same on every command, and in front of the command as behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli import commands
from tidelog.cli.commands import behind_command, split_leading
from tidelog.cli.failure import Failure
from tidelog.cli.output import Changes

NUMBERS = {"--count", "--limit", "--max-messages", "--num-records"}
"""What ``-n`` stands for: how many records or rows, whatever the command calls them."""
SERVERS = {"console"}
"""Commands that talk to clusters on behalf of others and print nothing but their address."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not getattr(command, "commands", None):
        yield " ".join(path), command
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*path, name))


@pytest.fixture(scope="module")
def root() -> Any:
    return commands.build_command()


def names(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def test_a_short_option_has_one_meaning(root: Any) -> None:
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for _, command in leaves(root):
        for option in command.params:
            long = {name for name in option.opts if name.startswith("--")}
            for short in set(option.opts) - long:
                if short.startswith("-"):
                    meanings[short] |= long
    assert meanings.pop("-n") == NUMBERS
    assert {short: long for short, long in meanings.items() if len(long) > 1} == {}
    page = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text(encoding="utf-8")
    for short, longs in meanings.items():
        assert f"| `{short}` | `{longs.pop()}` |" in page


def test_every_command_that_talks_to_a_cluster_takes_a_properties_file_and_prints_json(root: Any) -> None:
    talking = {
        name: names(command) for name, command in leaves(root) if "--bootstrap-server" in names(command)
    }
    assert {"topics delete", "users add", "pipeline run", "events generate", "cluster describe"} <= set(
        talking
    )
    assert [name for name, options in talking.items() if "--command-config" not in options] == []
    assert {name for name, options in talking.items() if "--json" not in options} == SERVERS


def test_every_command_with_json_can_name_its_columns_in_a_pipe(root: Any) -> None:
    assert [
        name for name, each in leaves(root) if "--json" in names(each) and "--headings" not in names(each)
    ] == []


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("--json topics list", "topics list --json"),
        (
            "-b a:1 --command-config=f topics list --internal",
            "topics list -b a:1 --command-config=f --internal",
        ),
        ("--bootstrap-server=a:1 produce orders", "produce --bootstrap-server=a:1 orders"),
        ("topics list --json", "topics list --json"),
        ("--json", "--json"),
        ("--json topics", "topics --json"),
    ],
)
def test_options_in_front_of_the_command_are_moved_behind_it(root: Any, line: str, moved: str) -> None:
    assert behind_command(root, *split_leading(line.split())) == moved.split()


def test_a_command_without_the_leading_option_refuses_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["--json", "certs", "init"]) == 2
    assert "No such option: --json" in capsys.readouterr().err
    assert commands.run(["--json", "start"]) == 2
    assert "`tidelog start` does not accept --json" in capsys.readouterr().err


def test_the_properties_file_in_front_of_the_command_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "client.properties"
    assert commands.run(["--command-config", str(missing), "topics", "list"]) == 1
    assert str(missing) in capsys.readouterr().err


def test_help_of_help_is_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["help", "help"]) == 0
    assert "topics" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("topics",), ("topics", "create"), ("start",)])
def test_help_shows_the_page_of_a_command(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        try:
            code = commands.run(["help", *words])
        except SystemExit as left:  # argparse leaves by itself, for `start`
            code = int(left.code or 0)
    assert code == 0
    assert f"{' '.join(('tidelog', *words))} [" in capsys.readouterr().out


def test_help_for_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["help", "topicz"]) == 2
    assert "No such command 'topicz'" in capsys.readouterr().err


def test_changes_are_one_array_even_if_a_later_one_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def change(*names: str) -> None:
        with Changes(json=True) as done:
            for name in names:
                done.add(f"changed {name}", name=name)
            raise Failure("the next one cannot be changed")

    with pytest.raises(Failure):
        change("a", "b")
    assert json.loads(capsys.readouterr().out) == [{"name": "a"}, {"name": "b"}]
    with pytest.raises(Failure):
        change()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("topics cr", {"create"}),
        ("topics create --par", {"--partitions"}),
        ("start --l", {"--listen", "--log-format", "--log-level"}),
        ("-b a:1 topics li", {"list"}),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, offered: set[str]) -> None:
    typed = ["tidelog", *words.split()]
    environment = {
        **os.environ,
        "_TIDELOG_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(typed),
        "COMP_CWORD": str(len(typed) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from tidelog.cli.main import main; main([])"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (set(done.stdout.split()), done.stderr) == (offered, ""), done
