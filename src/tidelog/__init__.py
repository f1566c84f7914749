"""Tidelog: a Kafka-compatible commit log in Python.

The clients are importable from here (``from tidelog import Producer``) and are loaded when they are first
named, so that a broker does not pay for them; ``tidelog.client`` has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client import *  # noqa: F403 (the names are listed in one place)

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    import tidelog.client as client

    if name == "__all__":  # asked for by `import *`
        return sorted(client.EXPORTS)
    if name in client.EXPORTS:
        value = getattr(client, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    import tidelog.client as client

    return sorted({*globals(), *client.EXPORTS})
