"""Options of single groups (``kafka-configs --entity-type groups``); the broker's where a group has none.

A group's option is checked against the broker's bounds (``group.consumer.min.session.timeout.ms`` and the
like) when it is set, and again when it is used: bounds that have been moved since hold without anybody
touching the group. What somebody else wrote and nobody can read is passed over.

The coordinator looks options up whenever it needs one, so a change is in force at once. ``check_group`` is
what ``dynamic_config`` refuses changes by.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.group_options import CONSUMER_OPTIONS, GROUP_OPTIONS, broker_synonym
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.options import BadValueError

_HEARTBEAT, _SESSION, _ = (each.name for each in CONSUMER_OPTIONS)


class GroupConfigs:
    """Looks options up for a group."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def int(self, group_id: str, name: str) -> int:
        """An option such as ``consumer.session.timeout.ms``, as it is in force."""
        entries = self._image.group_configs.get(group_id)
        if entries is None or name not in entries:
            return self._config.int(broker_synonym(name))
        value = usable_value(name, entries[name])
        if value is None:
            return self._config.int(broker_synonym(name))
        low, high = bounds(name, self._config)
        return min(max(value, low), high)


def bounds(name: str, config: BrokerConfig) -> tuple[int, int]:
    """The least and the most that an option of consumer groups counts for."""
    low, high = (config.int(bound) for bound in _bound_names(name))
    return low, high


def _bound_names(name: str) -> tuple[str, str]:
    subject = name.removeprefix("consumer.")
    return f"group.consumer.min.{subject}", f"group.consumer.max.{subject}"


def usable_value(name: str, text: str) -> int | None:
    """The number that ``text`` stands for; None if it cannot be used."""
    try:
        value = GROUP_OPTIONS[name].parse(text)
    except BadValueError:
        return None
    return value if isinstance(value, int) else None


def check_group(entries: Mapping[str, str], config: BrokerConfig) -> None:
    """Refuse a group's complete new entries with INVALID_CONFIG if one or their sum cannot be used."""
    for name, text in entries.items():
        if name not in GROUP_OPTIONS:
            raise _invalid(f"Unknown group config name: {name}")
        try:
            GROUP_OPTIONS[name].parse(text)
        except BadValueError as error:
            raise _invalid(str(error)) from error
    for option in CONSUMER_OPTIONS:
        if option.name in entries:
            _check_bounds(option.name, entries[option.name], config)
    if _number(_SESSION, entries, config) <= _number(_HEARTBEAT, entries, config):
        raise _invalid(f"{_SESSION} must be greater than {_HEARTBEAT}")


def _check_bounds(name: str, text: str, config: BrokerConfig) -> None:
    value = int(text)
    low, high = _bound_names(name)
    if value < config.int(low):
        raise _invalid(f"{name} must be greater than or equal to {low}")
    if value > config.int(high):
        raise _invalid(f"{name} must be less than or equal to {high}")


def _number(name: str, entries: Mapping[str, str], config: BrokerConfig) -> int:
    return int(entries[name]) if name in entries else config.int(broker_synonym(name))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
