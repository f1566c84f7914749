"""Finds what other packages add to Tidelog: commands, pipelines and console pages, named as entry points.

A package names its objects in its own ``pyproject.toml``::

    [project.entry-points."tidelog.commands"]
    greet = "my_package.commands:GREET"

The groups are :data:`COMMANDS`, :data:`PIPELINES`, :data:`CONSOLE_PAGES` and :data:`RECORD_OPENERS`. Keep the
named module small: it is imported to list the object, not to use it. An object that cannot be loaded is
reported in one line and left out; everything else works without it.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "tidelog.commands"
"""Each names a :class:`Command`; its name is that of the command, or ``group.command``."""
PIPELINES = "tidelog.pipelines"
"""Each names a ``tidelog.spark.pipelines.pipeline.Pipeline``, or a tuple of them."""
CONSOLE_PAGES = "tidelog.console_pages"
"""Each names a ``tidelog.console.extension.ConsolePage``."""
RECORD_OPENERS = "tidelog.record_openers"
"""Each names a function that takes a file of keys and returns an ``Opener`` of dead letters."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ExtensionError(TidelogError):
    """A package adds an object that cannot be loaded; the text names the package."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of another package, and its line in ``tidelog --help``."""

    module: str
    """It has ``app`` (a typer application), or ``command`` (a function) and ``EPILOG``."""
    help: str
    subcommands: bool = False
    """Other packages may add commands to this group."""


@dataclass(frozen=True, slots=True)
class Extension:
    """An object that a package adds, not loaded yet."""

    name: str
    package: str
    entry_point: EntryPoint

    def load(self, kind: type[T] | tuple[type[T], ...]) -> T:
        """The object; raises :class:`ExtensionError`, in one sentence."""
        try:
            found: Any = self.entry_point.load()
        except Exception as error:
            # The package may fail in any way while it is imported.
            raise self.error(f"{type(error).__name__}: {error}") from error
        if not isinstance(found, kind):
            raise self.error(f"{self.entry_point.value} is a {type(found).__name__}")
        return found

    def error(self, reason: str) -> ExtensionError:
        """Why it cannot be used."""
        return ExtensionError(
            f"{self.name} of package {self.package} cannot be loaded ({reason}): update the package, or run "
            f"`pip uninstall {self.package}`"
        )


@functools.cache
def extensions(group: str) -> tuple[Extension, ...]:
    """The objects that installed packages name in a group; nothing is imported."""
    # It takes some ten milliseconds to import, which most commands do not need to spend.
    from importlib.metadata import entry_points

    found: dict[str, Extension] = {}
    for each in entry_points(group=group):
        package = each.dist.name if each.dist is not None else each.module.partition(".")[0]
        first = found.setdefault(each.name, Extension(each.name, package, each))
        if first.package != package:
            logger.warning(
                "%s of package %s is left out: package %s has the same name in %s",
                *(each.name, package, first.package, group),
            )
    return tuple(found.values())


@functools.cache
def loaded(group: str, kind: type[T] | tuple[type[T], ...]) -> dict[str, T]:
    """The objects of a group by name; those that cannot be loaded are reported in one line each."""
    found = {}
    for each in extensions(group):
        try:
            found[each.name] = each.load(kind)
        except ExtensionError as error:
            logger.warning("%s", error)
    return found
