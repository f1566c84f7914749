from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, grouped


@dataclass(frozen=True)
class Size:
    """Options that come together, one of which has no default."""

    height: Annotated[int, typer.Option("--height", help="How high.")]
    width: Annotated[int, typer.Option("--width", help="How wide.")] = 3


@dataclass(frozen=True)
class Look:
    """Options of which some come together with others elsewhere."""

    size: Size
    color: Annotated[str, typer.Option("--color", help="Which color.")] = "red"


app = typer.Typer()


@app.command()
@grouped
def draw(
    look: Look,
    name: Annotated[str, typer.Argument()] = "box",
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Draw something."""
    print(
        name, look.size.height, look.size.width, look.color, connection.bootstrap, connection.command_config
    )


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--height", "2"], "box 2 3 red None None\n"),
        (
            ["--height", "2", "--width", "5", "tree", "--color", "blue", "-b", "there:1"],
            "tree 2 5 blue there:1 None\n",
        ),
    ],
)
def test_options_of_a_class_are_options_of_the_command(arguments: list[str], printed: str) -> None:
    done = CliRunner().invoke(app, arguments, env={"TIDELOG_BOOTSTRAP": "", "TIDELOG_COMMAND_CONFIG": ""})
    assert (done.exit_code, done.output) == (0, printed)


def test_an_empty_name_of_brokers_is_not_the_default() -> None:
    done = CliRunner().invoke(app, ["--height", "2", "-b", ""], env={"TIDELOG_BOOTSTRAP": "there:1"})
    assert done.exit_code == 2
    assert "is empty" in done.output


def test_an_option_without_a_default_has_to_be_there() -> None:
    assert CliRunner().invoke(app, []).exit_code == 2


def test_the_help_is_that_of_the_command_with_all_options() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    for text in (
        "Draw something.",
        "--height",
        "How wide.",
        "--color",
        "--bootstrap-server",
        "--command-config",
    ):
        assert text in shown
