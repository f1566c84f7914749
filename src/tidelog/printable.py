"""Text from peers on its way to a terminal or a log: nothing in it may act on the line that shows it.

Clients choose the names of topics, groups, members, certificates and much else. Control characters move the
cursor or begin a line of their own, and bidirectional and other format characters (U+202E, U+200B) make a
line look like another. They are shown as escapes; letters of all scripts stay as they are. Used by the log's
formats (``logs``), the audit log and the commands' tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import overload


@overload
def printable(text: str) -> str: ...
@overload
def printable(text: str | None) -> str | None: ...
def printable(text: str | None) -> str | None:
    r"""Text on one line, with ``\n``, ``\x1b`` or ``\u202e`` for each character that is not printable."""
    return None if text is None else _escaped(text, lambda each: each.encode("unicode_escape").decode())


def printable_json(encoded: str) -> str:
    r"""JSON on one line that means the same, with ``\u202e`` for each character that is not printable."""
    return _escaped(encoded, _json_escape)


def _json_escape(character: str) -> str:
    # Imported here: few lines need it, and a start can do without it.
    import json

    return json.dumps(character)[1:-1]


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else escape(each) for each in text)
