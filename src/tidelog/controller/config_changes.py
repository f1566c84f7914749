"""What a config request makes of a resource's entries.

A resource (a topic, a group, a broker, or the default of all brokers, which has the empty name) has a table
of entries, text by name. AlterConfigs replaces the table, IncrementalAlterConfigs edits it. Pure functions:
they return the new table or raise the refusal in Kafka's words; whether the values are allowed is for the
option tables in ``metadata``, and writing is for ``controller.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.options import ConfigDef, Option, OptionType


class ResourceType(enum.IntEnum):
    """What can have configs; the numbers are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing with configs; ``type`` is the raw number of a request, which may be no known one."""

    type: int
    name: str


class OpType(enum.IntEnum):
    """What IncrementalAlterConfigs does to one entry."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOp(NamedTuple):
    """One edit; ``op`` is the raw number of a request."""

    name: str
    op: int
    value: str | None


def check_entries(entries: Sequence[tuple[str, str | None]]) -> None:
    """Refuse an entry that comes twice, or has no value where it needs one (INVALID_REQUEST)."""
    names = [name for name, _ in entries]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, value in entries if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def check_ops(ops: Sequence[ConfigOp]) -> None:
    """:func:`check_entries` for edits: a DELETE needs no value; an unknown edit is refused too."""
    check_entries([(op.name, "" if op.op == OpType.DELETE else op.value) for op in ops])
    for op in ops:
        if op.op not in OpType.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {op.op}")


def edit_topic_configs(
    current: Mapping[str, str], ops: Sequence[ConfigOp], options: ConfigDef
) -> dict[str, str]:
    """A topic's entries after ``ops``, or a group's."""
    edited = dict(current)
    for op in ops:
        if op.op in (OpType.APPEND, OpType.SUBTRACT):
            option = options.get(op.name)
            if option is None or option.type is not OptionType.LIST:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {OpType(op.op).name} to key {op.name} because its type is not LIST.",
                )
            edited[op.name] = _edit_list(edited.get(op.name), op, option)
        else:
            _set_or_delete(edited, op)
    return edited


def edit_broker_configs(
    current: Mapping[str, str], ops: Sequence[ConfigOp], options: ConfigDef
) -> dict[str, str]:
    """A broker's entries, or those of the default of all brokers, after ``ops``."""
    edited = dict(current)
    for op in ops:
        if op.op in (OpType.APPEND, OpType.SUBTRACT):
            option = options.get(op.name)
            if option is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {op.name}")
            if option.type is not OptionType.LIST:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Config value {OpType(op.op).name.lower()} is not allowed for config key: {op.name}",
                )
            edited[op.name] = _edit_list(edited.get(op.name), op, option)
        else:
            _set_or_delete(edited, op)
    return edited


def _set_or_delete(entries: dict[str, str], op: ConfigOp) -> None:
    if op.op == OpType.SET and op.value is not None:
        entries[op.name] = op.value
    else:
        entries.pop(op.name, None)


def _edit_list(current: str | None, op: ConfigOp, option: Option) -> str:
    """A list's text with items appended or taken away; without an entry the edit starts from the default."""
    text = current if current is not None else option.render(option.default)
    items = [item for item in (text or "").split(",") if item]
    for item in (op.value or "").split(","):
        if op.op == OpType.APPEND and item not in items:
            items.append(item)
        elif op.op == OpType.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)
