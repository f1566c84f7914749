"""Hides fields of records from people: phone numbers, names, whatever the rules name.

A rule is about topics and names fields of JSON values, headers or the key. What is hidden keeps the first and
last characters of long texts, so that two of them can be told apart; numbers and everything else are stars.
A value of which a rule names fields but which is no JSON is hidden as a whole: nobody knows what is in it.
Records are masked before filters see them, or a filter would tell what is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tidelog.console.people.person import matches
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import MaskRule

_STARS = "****"
_KEPT = 2
_LONG = 8
_DEEPEST = 64


class Mask:
    """The rules of one topic that are in force for somebody."""

    def __init__(self, rules: Sequence[MaskRule]) -> None:
        self._fields = tuple(name for rule in rules for name in rule.fields)
        self._headers = tuple(name for rule in rules for name in rule.headers)
        self._key = any(rule.key for rule in rules)

    def __bool__(self) -> bool:
        return bool(self._fields or self._headers or self._key)

    def apply(self, record: RawRecord) -> RawRecord:
        """The record without what is hidden."""
        hidden: set[str] = set()
        key, value, headers = record.key, record.value, record.headers
        if self._key and key is not None:
            key = hide(key.decode("utf-8", "replace")).encode()
            hidden.add("key")
        if self._fields and value is not None:
            masked = self._value(value)
            if masked is not value:
                value = masked
                hidden.add("value")
        if self._headers:
            headers = []
            for name, each in record.headers:
                if each is not None and matches(name, self._headers):
                    headers.append((name, hide(each.decode("utf-8", "replace")).encode()))
                    hidden.add(f"header {name}")
                else:
                    headers.append((name, each))
        if not hidden:
            return record
        return record._replace(key=key, value=value, headers=headers, masked=frozenset(hidden))

    def _value(self, value: bytes) -> bytes:
        try:
            found = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return _STARS.encode()
        if not isinstance(found, dict | list):
            return _STARS.encode()
        walk = _Walk(self._fields)
        masked = walk.masked(found, "", 0)
        return msgspec.json.encode(masked) if walk.has_hidden else value


class _Walk:
    """Goes through one JSON value."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self.has_hidden = False

    def masked(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEEPEST:
            self.has_hidden = True
            return _STARS
        if isinstance(value, list):
            return [self.masked(each, path, depth + 1) for each in value]
        if isinstance(value, dict):
            return {name: self._field(name, each, path, depth) for name, each in value.items()}
        return value

    def _field(self, name: str, value: Any, path: str, depth: int) -> Any:
        place = f"{path}.{name}" if path else name
        if any(fnmatchcase(name, each) or fnmatchcase(place, each) for each in self._fields):
            if value is None:
                return None
            self.has_hidden = True
            return hide(value) if isinstance(value, str) else _STARS
        return self.masked(value, place, depth + 1)


def hide(text: str) -> str:
    """Stars; of a long text the first and last two characters stay."""
    return f"{text[:_KEPT]}{_STARS}{text[-_KEPT:]}" if len(text) >= _LONG else _STARS
