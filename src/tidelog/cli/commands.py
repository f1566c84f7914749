"""Every command but ``start``, put together with typer, and what happens when one of them fails.

A command module offers ``app`` (a group of commands) or ``command`` (a single function). ``run`` is the one
place where exceptions become a sentence on stderr and an exit code; commands raise and do not catch.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tidelog
from tidelog import extensions
from tidelog.cli import failure
from tidelog.cli.output import complain, examples, set_headings_in_pipes, silence_stdout
from tidelog.cli.shared_options import Bootstrap, CommandConfig, JsonOutput
from tidelog.extensions import Command, Extension

COMMANDS = {
    "topics": Command(
        "tidelog.cli.topics.command",
        "Create, list, describe, alter and delete topics, or their oldest records.",
    ),
    "produce": Command("tidelog.cli.records.produce", "Write lines or JSON records to a topic."),
    "consume": Command("tidelog.cli.records.consume", "Print the records of a topic."),
    "groups": Command(
        "tidelog.cli.groups.command",
        "List, describe and delete groups; show their lag and reset their offsets.",
    ),
    "transactions": Command(
        "tidelog.cli.transactions.command", "List, describe and abort transactions; find hanging ones."
    ),
    "configs": Command("tidelog.cli.configs", "Describe and alter configs of topics, brokers and groups."),
    "users": Command(
        "tidelog.cli.users.command", "List, add and remove SCRAM users; change their passwords."
    ),
    "tokens": Command(
        "tidelog.cli.tokens.command",
        "Create, list, renew and expire delegation tokens.",
    ),
    "acls": Command("tidelog.cli.acls.command", "List, add and remove ACLs; explain their effect."),
    "quotas": Command(
        "tidelog.cli.quotas.command", "List, set and remove quotas of users, clients and IP addresses."
    ),
    "clients": Command(
        "tidelog.cli.clients.command", "Show connected clients, their software and their load."
    ),
    "cluster": Command(
        "tidelog.cli.cluster.command", "Start a cluster on this machine; show the state of any cluster."
    ),
    "partitions": Command(
        "tidelog.cli.partitions.command", "Move partitions between brokers; elect leaders."
    ),
    "log-dirs": Command(
        "tidelog.cli.log_dirs.command",
        "Show the directories where brokers keep logs; move replicas between them.",
    ),
    "features": Command("tidelog.cli.features", "Describe, upgrade and downgrade the features of a cluster."),
    "top": Command(
        "tidelog.cli.top.command", "Watch a cluster live: rates, busy topics, groups by lag, slow requests."
    ),
    "console": Command(
        "tidelog.cli.console", "Show clusters in a browser: topics, messages, groups, brokers, Spark."
    ),
    "perf": Command("tidelog.cli.perf.command", "Measure producer, consumer and end-to-end performance."),
    "certs": Command("tidelog.cli.certs.command", "Create certificates for development and tests."),
    "metrics": Command("tidelog.cli.metrics", "Write dashboards for Grafana and alert rules for Prometheus."),
    "zookeeper": Command("tidelog.cli.zookeeper", "Start a ZooKeeper for testing."),
    "pipeline": Command(
        "tidelog.cli.pipeline.command",
        "Run the data pipelines on Spark, work off days again, see how they stand.",
        subcommands=True,
    ),
    "lake": Command(
        "tidelog.cli.lake.command",
        "See how the lake's tables stand, compact them, forget old snapshots.",
    ),
    "deadletters": Command(
        "tidelog.cli.deadletters.command",
        "List and show what pipelines have refused, and send it again.",
    ),
    "log": Command("tidelog.cli.log.command", "Inspect log files on disk, without a broker."),
}

_START_HELP = "Start a broker (`tidelog start --help` lists its options)."
_FIRST_STEPS = (
    "tidelog start",
    "tidelog topics create orders --partitions 3",
    "echo hello | tidelog produce orders",
    "tidelog consume orders --from-beginning",
)

# What rich takes for a tag, such as [spark], and the end of a line within a paragraph.
_MARKUP = re.compile(r"\[[a-z#/@][^\[]*?\]")
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")

_COMPLETES = "_TIDELOG_COMPLETE"
"""Set by the scripts of the shells when they ask what may follow."""

# typer shows BadParameter and keeps its parent, the root of all mistakes on the command line, to itself.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


class _InOurOrder(TyperGroup):
    """Lists the commands as the table has them, then those of other packages; typer puts groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = {name: place for place, name in enumerate(("start", *COMMANDS))}
        return sorted(super().list_commands(ctx), key=lambda name: (order.get(name, len(order)), name))


def build_app(wanted: str | None = None) -> typer.Typer:
    """The typer application; with ``wanted`` only that command's module is imported."""
    app = typer.Typer(
        name="tidelog",
        cls=_InOurOrder,
        help="Tidelog, a Kafka-compatible commit log: start a broker, and work with any Kafka cluster.",
        epilog=examples(*_FIRST_STEPS),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    app.command("start", help=_START_HELP, add_help_option=False)(_start)
    added = {} if wanted in COMMANDS else _added()
    if wanted in added:
        _add_from_package(app, wanted, added[wanted])
        return app
    for name, command in COMMANDS.items():
        if wanted not in COMMANDS or wanted == name:
            _add(app, name, command)
    for name, extension in added.items():
        with _reported():
            _add_from_package(app, name, extension)
    return app


def _added() -> dict[str, Extension]:
    """The commands of other packages; entry points are looked up only where a command is not one of ours."""
    found = extensions.extensions(extensions.COMMANDS)
    return {
        each.name: each for each in found if "." not in each.name and each.name not in ("start", *COMMANDS)
    }


@contextmanager
def _reported() -> Iterator[None]:
    """A command of another package that cannot be loaded is one line on stderr, and the others work."""
    try:
        yield
    except extensions.ExtensionError as error:
        complain(str(error))


def build_command(wanted: str | None = None) -> Any:
    """The application as it is run, with its help texts shown as they are written."""
    command = typer.main.get_command(build_app(wanted))
    _add_headings(command)
    _add_start_options(command)
    if getattr(typer.core, "HAS_RICH", True):  # else typer prints texts as they are
        _show_as_written(command)
    return command


def _headings(
    headings: Annotated[
        bool,
        typer.Option(
            "--headings",
            help="Print column names even when output is piped.",
            expose_value=False,
            callback=set_headings_in_pipes,
        ),
    ] = False,
) -> None:
    """Declares the option that :func:`_add_headings` gives to commands."""


def _add_headings(command: Any) -> None:
    """Give ``--headings`` to every command with ``--json``: those are the ones that may print a table."""
    declared = typer.Typer(add_completion=False)
    declared.command()(_headings)
    (option,) = (each for each in typer.main.get_command(declared).params if "--headings" in each.opts)
    leaves = [command]
    while leaves:
        each = leaves.pop()
        leaves += getattr(each, "commands", {}).values()
        at = next((at for at, known in enumerate(each.params) if "--json" in known.opts), None)
        if at is not None and each is not command:
            each.params.insert(at + 1, option)


def _add_start_options(command: Any) -> None:
    """Give ``start`` its options, for the completion of the shell alone: argparse reads them."""
    if _COMPLETES not in os.environ:
        return
    from tidelog.cli.start import option_names

    shown = [
        inspect.Parameter(
            name[2:].replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(name)],
        )
        for name in option_names()
        if name != "--help"
    ]

    def declare(**_: str) -> None:
        """Never runs."""

    declare.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    declare.__annotations__ = {each.name: each.annotation for each in shown}
    declared = typer.Typer(add_completion=False)
    declared.command()(declare)
    command.commands["start"].params += typer.main.get_command(declared).params


def _show_as_written(command: Any) -> None:
    """Keep rich from taking brackets for markup, and the line ends of a docstring for line ends of a page."""
    for each in (command, *command.params):
        for part in ("help", "short_help", "epilog"):
            text = getattr(each, part, None)
            if text:
                setattr(each, part, _MARKUP.sub(r"\\\g<0>", _LINE_END.sub(" ", cleandoc(text))))
    for subcommand in getattr(command, "commands", {}).values():
        _show_as_written(subcommand)


def _add(app: typer.Typer, name: str, command: Command) -> None:
    module = importlib.import_module(command.module)
    if command.subcommands:
        for extension in extensions.extensions(extensions.COMMANDS):
            group, _, subcommand = extension.name.partition(".")
            if group == name and subcommand:
                with _reported():
                    _add_from_package(module.app, subcommand, extension)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, help=command.help, no_args_is_help=True)
    else:
        # Most commands do nothing without arguments; those that do say so.
        helps = not getattr(module, "RUNS_WITHOUT_ARGUMENTS", False)
        app.command(name, short_help=command.help, epilog=module.EPILOG, no_args_is_help=helps)(
            module.command
        )


def _add_from_package(app: typer.Typer, name: str, extension: Extension) -> None:
    """Add a command of another package; raises ``ExtensionError`` where it cannot be imported."""
    command = extension.load(Command)
    try:
        _add(app, name, command)
    except Exception as error:
        # The package may fail in any way while it is imported.
        raise extension.error(f"{type(error).__name__}: {error}") from error


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tidelog {tidelog.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    json: JsonOutput = False,
    headings: Annotated[
        bool, typer.Option("--headings", help="Print column names even when output is piped.")
    ] = False,
) -> None:
    """Options before the command; ``behind_command`` has moved all but ``--version`` behind it."""


def _start() -> None:
    """Listed for ``tidelog --help`` only: ``main`` has dispatched ``start`` before typer was imported."""
    raise AssertionError("tidelog.cli.main dispatches `start` itself")


def _start_with(leading: list[str], arguments: list[str]) -> int:
    """``start`` behind ``help`` or behind options; ``main`` dispatches it otherwise."""
    if leading:
        complain(
            f"`tidelog start` does not accept {leading[0].partition('=')[0]}; see `tidelog start --help`"
        )
        return 2
    from tidelog.cli.start import main as start

    return start(arguments)


def run(arguments: list[str]) -> int:
    """Run one command; every way it can fail ends here as one sentence and an exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipeline has gone (`| head`): its business is done, and so is ours.
        silence_stdout()
        return 0
    return code


def _run(arguments: list[str]) -> int:
    leading, rest = split_leading(arguments)
    if rest[:1] == ["help"]:
        rest = [*(rest[1:] if rest[1:] != ["help"] else ()), "--help"]
    if rest[:1] == ["start"]:
        return _start_with(leading, rest[1:])
    try:
        command = build_command(rest[0] if rest else None)
    except extensions.ExtensionError as error:
        complain(str(error))
        return 1
    arguments = behind_command(command, leading, rest)
    try:
        result = command(arguments, prog_name="tidelog", standalone_mode=False)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            # typer takes a reader that has gone for a failure.
            raise leaving.__context__ from None
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        raise
    except _UsageError as error:
        return _usage(error)
    except Exception as error:
        if os.environ.get("TIDELOG_DEBUG"):
            raise
        complain(failure.sentence(error))
        return 2 if isinstance(error, failure.WrongUsage) else 1
    return result if isinstance(result, int) else 0


def _usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        # A command without arguments: typer has printed its help already.
        return 2
    path = error.ctx.command_path if error.ctx is not None else "tidelog"
    text = str(error.format_message()).rstrip(".")
    complain(f"{text}{'' if text.endswith('?') else ';'} see `{path} --help`")
    return 2


TAKE_A_VALUE = {
    "--bootstrap-server": True,
    "-b": True,
    "--command-config": True,
    "--json": False,
    "--headings": False,
}
"""Options that may be in front of the command, where they mean the same; and whether a value follows."""


def split_leading(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options in front of the command, and the rest of the command line."""
    end = 0
    while end < len(arguments):
        name, equals, _ = arguments[end].partition("=")
        if name not in TAKE_A_VALUE:
            break
        end += 2 if TAKE_A_VALUE[name] and not equals else 1
    return arguments[:end], arguments[end:]


def behind_command(root: Any, leading: list[str], rest: list[str]) -> list[str]:
    """The command line with the leading options right behind the names of the command."""
    command, names = root, 0
    while names < len(rest) and rest[names] in getattr(command, "commands", {}):
        command = command.commands[rest[names]]
        names += 1
    return [*rest[:names], *leading, *rest[names:]]
