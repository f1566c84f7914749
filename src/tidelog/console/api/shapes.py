"""What several endpoints are asked and answer alike: a name typed again, that something was done."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.client.resources import Outcome
from tidelog.console.refusal import Refusal


class TypedName(msgspec.Struct, forbid_unknown_fields=True):
    """The name once more, typed by whoever means it."""

    name: str


class Done(msgspec.Struct, frozen=True):
    """Something was done; ``remark`` may say more."""

    remark: str = ""


def require_typed(typed: str, name: str, what: str, purpose: str) -> None:
    """Raise a refusal unless ``name`` was typed again: ``the topic's whole name``, ``to delete it``."""
    if typed != name:
        raise Refusal(f"type {what}, {name}, {purpose}", 400, "NAME_NOT_TYPED")


def raise_errors(results: Iterable[Outcome]) -> None:
    """Raise the first error among results."""
    for each in results:
        each.raise_for_error()
