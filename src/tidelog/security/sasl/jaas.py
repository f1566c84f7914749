"""Lines of JAAS, as they stand in Kafka's property files: a login module, a flag, and options in quotes.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_alice="…";

The module's name says which mechanism the line is for; a broker and a client read their names and passwords
from the options. Quotes may be single or double, a backslash in them stands for itself or, before one of
``n t r b f``, for what it does in Java; what needs no quotes may do without. ``//`` and ``/* */`` are
comments.

Nothing that is said about a line ever shows a value of it. Used by ``config/sasl_settings`` for brokers and
by ``client/_network/security`` for clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"[^\s=;\"']+")
_VALUE = re.compile(r"[^\s;\"']+")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """A line that cannot be read; the text says where and shows no value."""


@dataclass(frozen=True, slots=True)
class JaasLine:
    """One login module with its options."""

    module: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasLine:
    """The one login module of ``text``; raises :class:`JaasError`."""
    reader = _Reader(text)
    module = reader.word("the name of a login module")
    flag = reader.word(f"a flag ({', '.join(_FLAGS)}) behind the login module")
    if flag.lower() not in _FLAGS:
        raise JaasError(f"the word behind the login module must be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while not reader.takes(";"):
        name = reader.word("an option, or the semicolon that ends the line")
        # By number: where quotes are missing, what looks like a name may be the end of a password.
        which = f"option number {len(options) + 1}"
        if not reader.takes("="):
            raise JaasError(f'{which} has no value: write it as name="value"')
        if name in options:
            raise JaasError(f"{which} has the name of one before it")
        options[name] = reader.value(which)
    if not reader.at_end:
        raise JaasError("there is more behind the semicolon: one login module is all that a line may have")
    return JaasLine(module, flag.lower(), options)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._skip()

    @property
    def at_end(self) -> bool:
        return self._pos == len(self._text)

    def takes(self, symbol: str) -> bool:
        """Step over ``symbol`` if it is next."""
        if not self._text.startswith(symbol, self._pos):
            return False
        self._pos += len(symbol)
        self._skip()
        return True

    def word(self, wanted: str) -> str:
        """A word without quotes."""
        found = _WORD.match(self._text, self._pos)
        if found is None:
            raise JaasError(f"it lacks {wanted}" if self.at_end else f"it has something else than {wanted}")
        return self._take(found, found[0])

    def value(self, which: str) -> str:
        """What follows the equals sign of an option."""
        quoted = _QUOTED.match(self._text, self._pos)
        if quoted is not None:
            raw = quoted[1] if quoted[1] is not None else quoted[2]
            return self._take(quoted, re.sub(r"\\(.)", _unescaped, raw, flags=re.DOTALL))
        bare = _VALUE.match(self._text, self._pos)
        if bare is None:
            is_open = self._text[self._pos : self._pos + 1] in ("'", '"')
            raise JaasError(f"the quotes of {which} are not closed" if is_open else f"{which} has no value")
        return self._take(bare, bare[0])

    def _take(self, found: re.Match[str], value: str) -> str:
        self._pos = found.end()
        self._skip()
        return value

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._pos)
        if found is not None:
            self._pos = found.end()


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
