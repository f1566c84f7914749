"""Imports that nobody has to wait for: they come when the broker serves already, a few in a turn of the loop.

The coordinators and most handlers are a good third of the broker's modules. Imported in one go they would
hold up the first requests, and hold the loop for longer than any request may; so they come one by one, and
what has arrived meanwhile is served in between. Used by ``broker/app`` once it is ready.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
from collections.abc import Iterable


def modules_of(package: str) -> list[str]:
    """The modules of a package, deepest first: few of them bring many others along."""
    path = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return sorted(names, key=lambda name: (-name.count("."), name))


async def import_in_steps(names: Iterable[str]) -> None:
    """Import modules, each in a turn of the loop."""
    for name in names:
        if name not in sys.modules:
            importlib.import_module(name)
            await asyncio.sleep(0)
