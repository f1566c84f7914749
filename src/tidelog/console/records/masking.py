"""Hides fields of records from people: phone numbers, names, whatever the rules name.

A rule is about topics and names fields of JSON values, headers or the key. What is hidden keeps the first and
last characters of long texts, so that two of them can be told apart; numbers and everything else are stars.
A value of which a rule names fields but which is no JSON, nor was decoded to some, or says a name twice, is
hidden as a whole: nobody knows what is in it. So is one whose format was chosen by who looks: its fields may
have any names.
Records are masked before filters see them, or a filter would tell what is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tidelog.console.auth.person import matches
from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import MaskRule
from tidelog.decode_errors import DECODE_ERRORS

_STARS = "****"
_ALL_STARS = _STARS.encode()
_KEPT = 2
_LONG = 8
_DEEPEST = 64
_LONGEST_PLACE = 1000
"""Characters of a field's path; what lies further is hidden: every path is held against every rule."""


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
        decoded_key, decoded_value = record.decoded_key, record.decoded_value
        if self._key and key is not None:
            key = hide(key.decode("utf-8", "replace")).encode()
            decoded_key = None
            hidden.add("key")
        if self._fields and value is not None:
            value, decoded_value, is_hidden = self._masked_value(value, decoded_value)
            if is_hidden:
                hidden.add("value")
        if self._headers:
            headers = []
            for name, each in record.headers:
                if each is not None and matches(name, self._headers):
                    headers.append((name, hide(each.decode("utf-8", "replace")).encode()))
                    hidden.add(f"header {name}")
                else:
                    headers.append((name, each))
        return record._replace(
            key=key,
            value=value,
            headers=headers,
            masked=frozenset(hidden),
            decoded_key=decoded_key,
            decoded_value=decoded_value,
        )

    def apply_all(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """The records without what is hidden."""
        return [self.apply(each) for each in records]

    def _masked_value(
        self, value: bytes, decoded: DecodedField | None
    ) -> tuple[bytes, DecodedField | None, bool]:
        """Bytes and what they say, without what is hidden; and whether something is.

        The bytes of what was decoded do not go on, even where nothing was hidden: they may hold more.
        """
        if decoded is None or decoded.json is None:
            masked = self._value(value)
            return masked, decoded, masked is not value
        masked = self._value(decoded.json) if decoded.is_certain else _ALL_STARS
        if masked is _ALL_STARS:
            return masked, None, True
        return masked, decoded._replace(json=masked), masked is not decoded.json

    def _value(self, value: bytes) -> bytes:
        try:
            found = msgspec.json.decode(value)
        except DECODE_ERRORS:
            return _ALL_STARS
        if not isinstance(found, dict | list):
            return _ALL_STARS
        walk = _Walk(self._fields)
        masked = walk.masked(found, "", 0)
        if walk.has_hidden:
            return msgspec.json.encode(masked)
        return _ALL_STARS if _says_twice(value) else value


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
        if len(place) > _LONGEST_PLACE:
            self.has_hidden = True
            return _STARS
        if any(fnmatchcase(name, each) or fnmatchcase(place, each) for each in self._fields):
            if value is None:
                return None
            self.has_hidden = True
            return hide(value) if isinstance(value, str) else _STARS
        return self.masked(value, place, depth + 1)


def _says_twice(value: bytes) -> bool:
    """Whether an object has a name twice: of the two only the last was looked at."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
            raise _SaidTwiceError

    try:
        json.loads(value, object_pairs_hook=check)
    except _SaidTwiceError:
        return True
    except (ValueError, RecursionError):
        return True  # nobody knows what is in it
    return False


class _SaidTwiceError(Exception):
    pass


def hide(text: str) -> str:
    """Stars; of a long text the first and last two characters stay."""
    return f"{text[:_KEPT]}{_STARS}{text[-_KEPT:]}" if len(text) >= _LONG else _STARS
