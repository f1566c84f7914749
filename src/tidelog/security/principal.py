"""Whom a client is known as, once it has proven it: a type and a name, as in ``User:alice``."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """A user, as access rules name him; types other than ``User`` come from builders of principals alone."""

    name: str
    type: str = USER

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
"""Somebody of whom nothing is known: without SASL, and without a client's certificate."""


def parse_principal(text: str) -> Principal:
    """``User:alice``; the name may hold colons. Raises ``ValueError`` with a sentence for people."""
    type_, colon, name = text.partition(":")
    if not colon or not type_ or not name:
        raise ValueError(f"{text!r} is not a principal: write it as User:alice")
    return Principal(name, type_)
