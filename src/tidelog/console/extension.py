"""A page that another package adds to the console: endpoints of its API, tools for assistants, a script.

The package names a :class:`ConsolePage` as an entry point of the group ``tidelog.console_pages``. Its
endpoints pass the same checks as ours: session, role and audit log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog import extensions


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """What a package adds."""

    endpoints: tuple[Any, ...] = ()
    """Of the class ``console.api.endpoint.Endpoint``."""
    tools: tuple[Any, ...] = ()
    """Of the class ``console.mcp.tools.Tool``."""
    title: str = ""
    """The name of the page in the navigation; empty for a package that adds no page of its own."""
    script: Path | None = None
    """A JavaScript module that exports ``show(view)``, as our own pages do. Its directory is served."""


def installed_pages() -> dict[str, ConsolePage]:
    """The pages of all installed packages, by the names of their entry points."""
    return extensions.loaded(extensions.CONSOLE_PAGES, ConsolePage)
