"""The syntax of regular expressions that Kafka takes (RE2), read into a tree.

Topic names are ASCII, so that a set of characters is a number of 128 bits here; what is beyond ASCII in an
expression is read and matches nothing. Groups do not capture and repetitions are neither greedy nor lazy,
because all that is asked is whether a whole name matches.

Refused as in RE2: look-around, back-references, possessive and stacked repetition, escapes that do not exist.
Refused besides is what is longer than ``MAX_LENGTH`` or nested deeper than ``MAX_DEPTH``: an expression is
read in one go, while everybody else waits. Used by ``topic_regex`` alone.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tidelog.regex.ascii_sets import (
    ALL,
    BEYOND_ASCII_FOLDS,
    CONTROL,
    LOWER,
    NEWLINE,
    PERL,
    POSIX,
    UPPER,
    set_of,
    span,
    unicode_set,
)

MAX_LENGTH = 4096
MAX_DEPTH = 100
MAX_REPEAT = 1000


class SyntaxFault(ValueError):
    """An expression that cannot be read."""


class Look(enum.Enum):
    """Positions that an expression may ask for."""

    START = "start"
    END = "end"
    BOUNDARY = "boundary"
    NO_BOUNDARY = "no boundary"


class Chars(NamedTuple):
    """One character of a set."""

    mask: int


class At(NamedTuple):
    """A position."""

    look: Look


class Sequence(NamedTuple):
    """One after the other; nothing if empty."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of these."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """``least`` to ``most`` times; without end if ``most`` is None."""

    part: Node
    least: int
    most: int | None


Node = Chars | At | Sequence | Choice | Repeat


_FLAGS = frozenset("imsU")
_REPETITIONS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(text: str) -> Node:
    """Read an expression; raises ``SyntaxFault``."""
    if len(text) > MAX_LENGTH:
        raise SyntaxFault(f"longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._depth = 0
        self._flags = frozenset[str]()
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._choice()
        if self._pos < len(self._text):
            raise SyntaxFault("unexpected )")
        return node

    # Reading characters

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._pos + ahead : self._pos + ahead + 1]

    def _next(self, missing: str) -> str:
        char = self._peek()
        if not char:
            raise SyntaxFault(missing)
        self._pos += 1
        return char

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._pos):
            self._pos += len(text)
            return True
        return False

    # Structure

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        repeated = False
        while (char := self._peek()) and char not in "|)":
            bounds = self._repetition(char)
            if bounds is not None:
                if repeated:
                    raise SyntaxFault("invalid nested repetition operator")
                if not parts:
                    raise SyntaxFault("missing argument to repetition operator")
                parts[-1] = _repeat(parts[-1], *bounds)
                repeated = True
                continue
            # RE2 takes a brace that begins no repetition for itself, yet lets nothing repeat it.
            repeated = char == "{"
            parts += self._atom()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repetition(self, char: str) -> tuple[int, int | None] | None:
        """The bounds of a repetition that begins here, with ``char``; past it and its ``?``."""
        if char == "{":
            bounds = self._counted()
        else:
            bounds = _REPETITIONS.get(char)
            if bounds is not None:
                self._pos += 1
        if bounds is None:
            return None
        self._take("?")
        return bounds

    def _counted(self) -> tuple[int, int | None] | None:
        """``{n}``, ``{n,}`` or ``{n,m}``; anything else that begins with a brace stands for itself."""
        end = self._text.find("}", self._pos)
        if end < 0:
            return None
        low, comma, high = self._text[self._pos + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or least > most)):
            raise SyntaxFault(f"invalid repeat count {self._text[self._pos : end + 1]}")
        self._pos = end + 1
        return least, most

    def _atom(self) -> list[Node]:
        """What stands here; nothing where only flags change."""
        char = self._next("")
        match char:
            case "(":
                return self._group()
            case "[":
                return [Chars(self._fold(self._set()))]
            case ".":
                return [Chars(ALL if "s" in self._flags else ALL & ~NEWLINE)]
            case "^":
                return [At(Look.START)]
            case "$":
                return [At(Look.END)]
            case "\\":
                return self._escape()
        return [self._literal(ord(char))]

    def _literal(self, code: int) -> Chars:
        return Chars(self._fold(span(code, code), code))

    def _group(self) -> list[Node]:
        flags = self._flags
        if self._take("?") and not self._name():
            flags = self._read_flags()
            if self._take(")"):
                self._flags = flags
                return []
            if not self._take(":"):
                raise SyntaxFault("invalid or unsupported Perl syntax")
        outer, self._flags = self._flags, flags
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SyntaxFault(f"nested deeper than {MAX_DEPTH} levels")
        node = self._choice()
        self._depth -= 1
        if not self._take(")"):
            raise SyntaxFault("missing closing )")
        self._flags = outer
        return [node]

    def _name(self) -> bool:
        """The name of a group behind ``(?``, if there is one."""
        if not (self._take("P<") or (self._peek(1) not in ("=", "!") and self._take("<"))):
            return False
        end = self._text.find(">", self._pos)
        name = self._text[self._pos : end] if end >= 0 else ""
        if not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
            raise SyntaxFault("invalid named capture")
        if name in self._names:
            raise SyntaxFault(f"duplicate capture group name {name}")
        self._names.add(name)
        self._pos = end + 1
        return True

    def _read_flags(self) -> frozenset[str]:
        flags, negated, any_read = set(self._flags), False, False
        while (char := self._peek()) not in ("", ":", ")"):
            self._pos += 1
            if char == "-" and not negated:
                negated, any_read = True, False
                continue
            if char not in _FLAGS:
                raise SyntaxFault(f"invalid or unsupported Perl syntax (?{char}")
            any_read = True
            (flags.discard if negated else flags.add)(char)
        if negated and not any_read:
            raise SyntaxFault("missing flags behind (?-")
        return frozenset(flags)

    # Escapes

    def _escape(self) -> list[Node]:
        char = self._next("trailing \\")
        match char:
            case "A":
                return [At(Look.START)]
            case "z":
                return [At(Look.END)]
            case "b":
                return [At(Look.BOUNDARY)]
            case "B":
                return [At(Look.NO_BOUNDARY)]
            case "Q":
                return self._quotation()
        mask = self._escaped_set(char)
        if mask is not None:
            return [Chars(self._fold(mask))]
        return [self._literal(self._escaped_code(char))]

    def _quotation(self) -> list[Node]:
        end = self._text.find("\\E", self._pos)
        quoted = self._text[self._pos : end] if end >= 0 else self._text[self._pos :]
        self._pos = len(self._text) if end < 0 else end + 2
        return [self._literal(ord(char)) for char in quoted]

    def _escaped_set(self, char: str) -> int | None:
        """The set that ``\\d``, ``\\pL`` and the like stand for; None if ``char`` begins no set."""
        if char.lower() in PERL:
            mask = PERL[char.lower()]
            return ALL & ~mask if char.isupper() else mask
        if char not in "pP":
            return None
        name = self._next("invalid character class range")
        if name == "{":
            end = self._text.find("}", self._pos)
            if end < 0:
                raise SyntaxFault("invalid character class range")
            name, self._pos = self._text[self._pos : end], end + 1
        negated = (char == "P") != name.startswith("^")
        try:
            mask = self._fold(unicode_set(name.removeprefix("^")))
        except LookupError:
            raise SyntaxFault(f"invalid character class range {name}") from None
        return ALL & ~mask if negated else mask

    def _escaped_code(self, char: str) -> int:
        """The character that an escape stands for."""
        if char in CONTROL:
            return CONTROL[char]
        if char == "x":
            return self._hexadecimal()
        if char in "01234567":
            # One digit other than 0 would be a back-reference, unless another octal digit follows.
            if char != "0" and self._peek() not in tuple("01234567"):
                raise SyntaxFault(f"invalid escape sequence \\{char}: there are no back-references")
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("")
            return int(digits, 8)
        if not (char.isascii() and char.isalnum()):
            return ord(char)
        raise SyntaxFault(f"invalid escape sequence \\{char}")

    def _hexadecimal(self) -> int:
        digits = self._next("invalid escape sequence \\x")
        if digits == "{":
            end = self._text.find("}", self._pos)
            digits = self._text[self._pos : end] if end >= 0 else ""
            self._pos = end + 1
        else:
            digits += self._next("invalid escape sequence \\x")
        if not digits or not set(digits) <= set("0123456789abcdefABCDEF") or int(digits, 16) > 0x10FFFF:
            raise SyntaxFault(f"invalid escape sequence \\x{digits}")
        return int(digits, 16)

    # Sets

    def _set(self) -> int:
        mask, negated = 0, self._take("^")
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise SyntaxFault("missing closing ]")
            first = False
            found = self._set_in_set()
            mask |= self._range() if found is None else found
        self._pos += 1
        # Folding comes before negation: (?i)[^k] does not match K.
        return ALL & ~self._fold(mask) if negated else mask

    def _set_in_set(self) -> int | None:
        if self._peek() == "[" and self._peek(1) == ":":
            end = self._text.find(":]", self._pos + 2)
            if end >= 0:
                name = self._text[self._pos + 2 : end]
                posix = POSIX.get(name.removeprefix("^"))
                if posix is None:
                    raise SyntaxFault(f"invalid character class range [:{name}:]")
                self._pos = end + 2
                return ALL & ~posix if name.startswith("^") else posix
        if self._peek() == "\\" and self._peek(1) and self._peek(1) in "dDsSwWpP":
            self._pos += 2
            return self._escaped_set(self._text[self._pos - 1])
        return None

    def _range(self) -> int:
        low = self._code_in_set()
        high = low
        if self._peek() == "-" and self._peek(1) not in ("", "]"):
            self._pos += 1
            high = self._code_in_set()
            if high < low:
                raise SyntaxFault("invalid character class range")
        return self._fold(span(low, high), low if low == high else None)

    def _code_in_set(self) -> int:
        char = self._next("missing closing ]")
        if char != "\\":
            return ord(char)
        return self._escaped_code(self._next("missing closing ]"))

    def _fold(self, mask: int, code: int | None = None) -> int:
        """The set in both cases, under ``(?i)``."""
        if "i" not in self._flags:
            return mask
        if code in BEYOND_ASCII_FOLDS:
            mask |= set_of(BEYOND_ASCII_FOLDS[code])
        return mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32


def _repeat(part: Node, least: int, most: int | None) -> Node:
    if most == 0:
        return Sequence(())
    if least == most == 1:
        return part
    if max(least, most or 0) >= 2 and not _fits(part, least, most):
        raise SyntaxFault(f"invalid repeat count: more than {MAX_REPEAT} in all")
    return Repeat(part, least, most)


def _fits(part: Node, least: int, most: int | None) -> bool:
    """Whether repetitions within repetitions stay below the limit."""
    return max(least, most or 0) * _weight(part) <= MAX_REPEAT


def _weight(node: Node) -> int:
    match node:
        case Repeat(part, least, most):
            return max(most if most is not None else least, 1) * _weight(part)
        case Sequence(parts) | Choice(parts):
            return max(map(_weight, parts), default=1)
    return 1


def _is_number(text: str) -> bool:
    """Whether it is a count as RE2 writes it: without leading zeros."""
    return text.isascii() and text.isdecimal() and (len(text) == 1 or text[0] != "0")
