"""Options in front of the command: ``tidelog --bootstrap-server broker:9092 --json topics list``.

They mean the same as behind the command, so :func:`behind_command` moves them there before typer parses the
command line. A command that does not have such an option refuses it, as it does behind its name.
"""

from __future__ import annotations

from typing import Any

TAKE_A_VALUE = {
    "--bootstrap-server": True,
    "-b": True,
    "--command-config": True,
    "--json": False,
    "--headings": False,
}
"""The options that may stand in front of the command, and whether a value follows."""


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
