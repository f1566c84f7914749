"""Tidelog: a Kafka-compatible commit log in Python.

What most programs need is importable from here (``from tidelog import Producer``): the clients, their
records and specs, the errors that programs catch. It is loaded when it is first named, so that a broker does
not pay for it; ``tidelog.client`` has the table. The rest is imported from its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.version import __version__ as __version__

if TYPE_CHECKING:
    from tidelog.client import *  # noqa: F403 (the names are listed in one place)


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
