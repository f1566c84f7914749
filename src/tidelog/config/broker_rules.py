"""Rules that span several broker options, with Kafka's wording.

``BrokerConfig`` applies them at start and before every dynamic change. Each returns or raises a sentence
that names the options involved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tidelog.config.coordinator_rules import coordinator_rules
from tidelog.config.listeners import Listener, check_ports, parse_map
from tidelog.config.options.authorizer_options import authorizer_rules
from tidelog.config.options.topic_options import resolve
from tidelog.config.options.unsupported_options import unmet_protection
from tidelog.errors import ConfigError

_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")

Values = Mapping[str, object]


def broken_rules(values: Values, given: Mapping[str, str]) -> list[str]:
    """A sentence for every rule that these typed values break; ``given`` is what somebody has set."""
    broken = [sentence for rule in _RULES for sentence in rule(values)]
    broken += unmet_protection(given)
    broken += authorizer_rules(values, given)
    if "inter.broker.listener.name" in given and "security.inter.broker.protocol" in given:
        broken.append(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set"
        )
    return broken


def _number(values: Values, name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _ids(values: Values) -> Iterator[str]:
    node_id, broker_id = _number(values, "node.id"), _number(values, "broker.id")
    if broker_id != -1 and node_id != broker_id:
        yield (
            "You must set `node.id` to the same value as `broker.id`; "
            f"they are {node_id} and {broker_id}: drop one of them"
        )


def _log_times(values: Values) -> Iterator[str]:
    defaults = resolve(values)
    if _number(defaults, "segment.ms") < 1:
        yield f"log.roll.ms must be greater than or equal to 1, not {defaults['segment.ms']}"
    if _number(defaults, "segment.jitter.ms") < 0:
        yield f"log.roll.jitter.ms must be greater than or equal to 0, not {defaults['segment.jitter.ms']}"
    if _number(defaults, "retention.ms") == 0:
        yield "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    least, most = _number(defaults, "min.compaction.lag.ms"), _number(defaults, "max.compaction.lag.ms")
    if least > most:
        yield (
            f"log.cleaner.min.compaction.lag.ms ({least}) must not be larger than "
            f"log.cleaner.max.compaction.lag.ms ({most})"
        )


def _cleaner_memory(values: Values) -> Iterator[str]:
    size = _number(values, "log.cleaner.dedupe.buffer.size")
    if size <= 1024 * 1024:
        yield f"log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread, not {size} bytes"


def _request_memory(values: Values) -> Iterator[str]:
    queued, largest = _number(values, "queued.max.request.bytes"), _number(values, "socket.request.max.bytes")
    if 0 < queued < largest:
        yield (
            f"queued.max.request.bytes ({queued}) must be larger or equal to "
            f"socket.request.max.bytes ({largest})"
        )


def _connection_limits(values: Values) -> Iterator[str]:
    name = "max.connections.per.ip.overrides"
    text = values[name]
    assert isinstance(text, str)
    try:
        overrides = parse_map(name, text)
    except ConfigError as error:
        yield str(error)
        return
    if _number(values, "max.connections.per.ip") == 0 and not overrides:
        yield f"max.connections.per.ip can be set to zero only if {name} property is set"
    for host, count in overrides.items():
        if not _HOST.fullmatch(host):
            yield f"{name} contains invalid addresses : {host}"
        if not count.isdecimal():
            yield f"{name} gives {host} the count {count!r}, which is not a whole number"


_RULES: Sequence[Callable[[Values], Iterator[str]]] = (
    _ids,
    _log_times,
    _cleaner_memory,
    _request_memory,
    _connection_limits,
    coordinator_rules,
)


def listener_rules(
    listeners: Sequence[Listener],
    advertised: Sequence[Listener],
    inter_broker: str,
    control_plane: str | None = None,
) -> None:
    """Refuse listeners that cannot be opened or advertised; they are parsed and free of controller ones."""
    if not listeners or not advertised:
        option = "listeners" if not listeners else "advertised.listeners"
        raise ConfigError(
            f"There must be at least one broker advertised listener: {option} holds only listeners that "
            "controller.listener.names keeps for a controller; add one, for example "
            "PLAINTEXT://localhost:9092"
        )
    check_ports(listeners)
    names, told = [each.name for each in listeners], [each.name for each in advertised]
    if not set(told) <= set(names):
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(told)}. "
            f"The valid options based on the current configuration are {','.join(names)}"
        )
    if inter_broker not in told:
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(told)}"
        )
    if control_plane is not None and (control_plane not in told or control_plane == inter_broker):
        others = ",".join(name for name in told if name != inter_broker)
        raise ConfigError(
            f"control.plane.listener.name is {control_plane}: name a listener of advertised.listeners other "
            f"than the one between brokers, {inter_broker}. The valid options based on currently configured "
            f"listeners are {others or 'none; add one to listeners and listener.security.protocol.map'}"
        )
    for listener in advertised:
        if listener.host == "0.0.0.0":
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                f"Set advertised.listeners to an address that clients reach, for example "
                f"{listener._replace(host='localhost')}"
            )
