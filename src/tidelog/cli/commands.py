"""Every command but ``start``, put together with typer, and what happens when one of them fails.

A command module offers ``app`` (a group of commands) or ``command`` (a single function). ``run`` is the one
place where exceptions become a sentence on stderr and an exit code; commands raise and do not catch.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass

import typer

import tidelog
from tidelog.cli import failure
from tidelog.cli.output import complain, silence_stdout


@dataclass(frozen=True)
class CommandModule:
    """Where a command lives and how it is listed in ``tidelog --help``."""

    module: str
    help: str


COMMANDS = {
    "topics": CommandModule("tidelog.cli.topics", "Create, list, describe, alter and delete topics."),
    "produce": CommandModule("tidelog.cli.produce", "Write lines or JSON records to a topic."),
    "consume": CommandModule("tidelog.cli.consume", "Print the records of a topic."),
    "configs": CommandModule("tidelog.cli.configs", "Describe and alter configs of topics and brokers."),
    "log": CommandModule("tidelog.cli.log", "Look into log files on disk; no broker needed."),
}

_EPILOG = """\
[bold]Examples[/bold]

tidelog start

tidelog topics create orders --partitions 3

echo hello | tidelog produce orders

tidelog consume orders --from-beginning
"""


def build_app(wanted: str | None = None) -> typer.Typer:
    """The typer application; with ``wanted`` only that command's module is imported."""
    app = typer.Typer(
        name="tidelog",
        help="Tidelog, a Kafka-compatible commit log: start a broker, and work with any Kafka cluster.",
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    app.command("start", help="Start a broker.", add_help_option=False)(_start)
    for name, command in COMMANDS.items():
        if wanted not in COMMANDS or wanted == name:
            _add(app, name, command)
    return app


def _add(app: typer.Typer, name: str, command: CommandModule) -> None:
    module = importlib.import_module(command.module)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, help=command.help, no_args_is_help=True)
    else:
        app.command(name, short_help=command.help)(module.command)


def _root(
    version: bool = typer.Option(False, "--version", "-V", help="Print the version and exit."),
) -> None:
    if version:
        print(f"tidelog {tidelog.__version__}")
        raise typer.Exit


def _start() -> None:
    """Listed for ``tidelog --help`` only: ``main`` has dispatched ``start`` before typer was imported."""
    raise AssertionError("tidelog.cli.main dispatches `start` itself")


def run(arguments: list[str]) -> int:
    """Run one command; every way it can fail ends here as one sentence and an exit code."""
    app = build_app(arguments[0] if arguments else None)
    try:
        app(arguments, prog_name="tidelog")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipeline has gone (`| head`): its business is done, and so is ours.
        silence_stdout()
        return 0
    except Exception as error:
        if os.environ.get("TIDELOG_DEBUG"):
            raise
        complain(failure.sentence(error))
        return 1
    finally:
        _flush()
    return 0


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
