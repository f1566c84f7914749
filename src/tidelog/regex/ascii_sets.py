"""Sets of characters that regular expressions name, as numbers of 128 bits: topic names are ASCII.

What is beyond ASCII is in no set here; scripts that have no ASCII characters are empty sets. Used by
``re2_syntax``, and by ``linear_regex`` as sets of characters.
"""

from __future__ import annotations

import unicodedata
from functools import cache

ALL = (1 << 128) - 1


def span(first: int, last: int) -> int:
    """The set of all characters between two, as far as they are ASCII."""
    last = min(last, 127)
    return 0 if first > last else (1 << last + 1) - (1 << first)


def set_of(text: str) -> int:
    """The set of these characters."""
    mask = 0
    for char in text:
        mask |= span(ord(char), ord(char))
    return mask


def chars_of(mask: int) -> frozenset[str]:
    """The characters of a set."""
    return frozenset(chr(code) for code in range(128) if mask >> code & 1)


_DIGIT = span(48, 57)
UPPER, LOWER = span(65, 90), span(97, 122)
WORD = _DIGIT | UPPER | LOWER | set_of("_")
PERL = {"d": _DIGIT, "s": set_of("\t\n\f\r "), "w": WORD}
POSIX = {
    "alnum": _DIGIT | UPPER | LOWER,
    "alpha": UPPER | LOWER,
    "ascii": ALL,
    "blank": set_of("\t "),
    "cntrl": span(0, 31) | span(127, 127),
    "digit": _DIGIT,
    "graph": span(33, 126),
    "lower": LOWER,
    "print": span(32, 126),
    "punct": span(33, 47) | span(58, 64) | span(91, 96) | span(123, 126),
    "space": set_of("\t\n\v\f\r "),
    "upper": UPPER,
    "word": WORD,
    "xdigit": _DIGIT | span(65, 70) | span(97, 102),
}
CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
NEWLINE = 1 << 10
BEYOND_ASCII_FOLDS = {0x17F: "s", 0x212A: "k"}
_CATEGORIES = frozenset(
    {
        *("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn"),
        *("N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"),
        *("S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    }
)


def unicode_set(name: str) -> int:
    """The ASCII part of a Unicode category or script; raises ``LookupError`` for what can be neither."""
    if name == "Any":
        return ALL
    letters = UPPER | LOWER
    if name in _CATEGORIES:
        return _category(name)
    if name == "Latin":
        return letters
    if name == "Common":
        return ALL & ~letters
    if len(name) > 1 and name[0].isupper() and name.replace("_", "").isalpha():
        return 0
    raise LookupError(name)


@cache
def _category(name: str) -> int:
    """The ASCII part of a category that there is; an expression may name it a thousand times."""
    return sum(1 << code for code in range(128) if unicodedata.category(chr(code)).startswith(name))
