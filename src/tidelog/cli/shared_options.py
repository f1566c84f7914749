"""The options that several commands have, each declared once: its names, its help, its bounds.

Options that always come together are the fields of a class (:class:`Connection`); a command has one parameter
for all of them, and ``grouped`` shows typer its fields. Such a class may hold others. A command module
declares what it alone has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

import typer

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
COMMAND_CONFIG = "TIDELOG_COMMAND_CONFIG"
"""The environment variable that names a properties file with options of the client, for all commands."""

# Which cluster, and how to talk to it


def _named(bootstrap: str | None) -> str | None:
    if bootstrap is not None and not bootstrap.strip():
        # A variable of the shell that is not set must not end at whatever runs on this machine.
        raise typer.BadParameter("is empty; omit it for the default")
    return bootstrap


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="TIDELOG_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="The bootstrap brokers.",
        show_default=DEFAULT_BOOTSTRAP,
        callback=_named,
    ),
]
"""None is what nobody has given: then a properties file may name the brokers, before the default counts."""
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar=COMMAND_CONFIG,
        metavar="FILE",
        help="A properties file with client options (TLS, SASL, …).",
    ),
]
ProducerProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--producer-property",
        metavar="NAME=VALUE",
        help="A producer option, by its Kafka name; may be repeated.",
    ),
]
ConsumerProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--consumer-property",
        metavar="NAME=VALUE",
        help="A consumer option, by its Kafka name; may be repeated.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="The metrics address of a broker, if it differs from metrics.listeners; may be repeated.",
    ),
]


@dataclass(frozen=True)
class Connection:
    """Which cluster a command talks to, and by what options."""

    bootstrap: Bootstrap = None
    command_config: CommandConfig = None


DEFAULT_CONNECTION = Connection()
"""Stands for the options in the signature of a command."""

# What is done, and what is shown

JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate the request without applying it.")]
Execute = Annotated[
    bool, typer.Option("--execute", help="Apply the changes; without it, only show the plan.")
]
PrintMetrics = Annotated[bool, typer.Option("--print-metrics", help="Print the client's metrics at the end.")]
BrokerIds = Annotated[
    list[int] | None, typer.Option("--broker", "-B", metavar="ID", help="A broker; may be repeated.")
]
NumRecords = Annotated[int, typer.Option("--num-records", "-n", min=1, help="The number of records.")]


def grouped(command: Callable[P, R], **several: tuple[type[Any], ...]) -> Callable[..., R]:
    """``command`` as typer shall see it: with the fields of its parameters that are classes of options.

    A parameter in ``several`` takes a tuple: one object of each of these classes.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if name in several:
            for each in several[name]:
                shown += [option for option in _options(each) if option.name not in {x.name for x in shown}]
        elif _is_group(kind):
            groups[name] = kind
            shown += _options(kind)
        else:
            shown.append(parameter.replace(annotation=kind))

    def run(**values: Any) -> R:
        given = {name: _made(kind, values) for name, kind in groups.items()}
        given |= {name: tuple(_made(each, values) for each in kinds) for name, kinds in several.items()}
        return command(**values, **given)  # type: ignore[call-arg]

    # Not `functools.wraps`: typer would follow its __wrapped__ to the signature that it shall not see.
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(run, name, getattr(command, name))
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown],
        return_annotation=hints.get("return", inspect.Signature.empty),
    )
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def _options(kind: type[Any]) -> list[inspect.Parameter]:
    """The options of a class, and those of the classes of options in it."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[inspect.Parameter] = []
    for each in fields(kind):
        hint = hints[each.name]
        if _is_group(hint):
            found += _options(hint)
        else:
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            found.append(
                inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            )
    return found


def _made(kind: type[Any], values: dict[str, Any]) -> Any:
    """A class of options out of their values, which are not the command's any more."""
    hints = get_type_hints(kind, include_extras=True)
    given = {}
    for each in fields(kind):
        hint = hints[each.name]
        if _is_group(hint):
            given[each.name] = _made(hint, values)
        else:
            given[each.name] = values.pop(each.name)
    return kind(**given)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)
