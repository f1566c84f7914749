"""Which topic names Kafka allows, and which would collide with a name that exists.

A topic's name becomes a directory (``orders-3``) and part of metric names, in which ``.`` and ``_`` look
alike: that is where both rules come from. Pure functions, called by the controller before anything is
written and by handlers that must tell an unknown topic from an impossible one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tidelog.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def reason_invalid(name: str) -> str | None:
    """Why ``name`` cannot be a topic, in Kafka's words, or None when it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION when ``name`` cannot be a topic."""
    reason = reason_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def has_collision_chars(name: str) -> bool:
    """Whether the name holds a character that metric names cannot keep apart."""
    return "." in name or "_" in name


def unify_collision_chars(name: str) -> str:
    """The form under which colliding names are equal."""
    return name.replace(".", "_")


def collision_index(names: Iterable[str]) -> dict[str, str]:
    """Existing names by their unified form; names without ``.`` and ``_`` cannot collide and are left out."""
    return {unify_collision_chars(name): name for name in names if has_collision_chars(name)}


def validate_no_collision(name: str, index: Mapping[str, str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION when another topic of ``index`` has the same unified name."""
    if not has_collision_chars(name):
        return
    existing = index.get(unify_collision_chars(name))
    if existing is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {existing}"
        )
