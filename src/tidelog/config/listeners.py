"""Listeners: the addresses a broker binds and the ones it tells clients, from Kafka's option strings.

``BrokerConfig`` calls :func:`parse_listeners` for ``listeners`` and ``advertised.listeners``; the broker
app binds the former and, once ports are known, publishes :func:`reachable` addresses.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.config.options.network_options import SECURITY_PROTOCOLS
from tidelog.errors import ConfigError

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_COMMA = re.compile(r"\s*,\s*")


class Listener(NamedTuple):
    """One address under a listener name; an empty host stands for every interface."""

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in on it."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """Whether it is encrypted."""
        return self.security_protocol.endswith("SSL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_map(option: str, text: str) -> dict[str, str]:
    """``KEY:VALUE,…`` as a dictionary; a key may hold colons, the value may not."""
    entries: dict[str, str] = {}
    for pair in _COMMA.split(text.strip()) if text.strip() else ():
        key, colon, value = pair.rpartition(":")
        if not colon:
            raise ConfigError(f"{option} holds {pair!r}, which is not of the form NAME:VALUE")
        entries[key.strip()] = value.strip()
    return entries


def parse_protocol_map(text: str) -> dict[str, str]:
    """``listener.security.protocol.map``: listener name in upper case → security protocol."""
    option = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for name, protocol in parse_map(option, text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid security protocol `{protocol}` defined in {option}; "
                f"it knows {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(option: str, texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners of one option, in order, with unique names; ``protocols`` says what each name speaks."""
    found: list[Listener] = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ConfigError(f"{option} holds {text!r}, which is not of the form NAME://HOST:PORT")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {name} of {option}; "
                f"add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"{option} holds {text!r}: a port is a number from 0 to 65535")
        found.append(Listener(name, host, port, protocols[name]))
    names = [listener.name for listener in found]
    if len(set(names)) != len(names):
        raise ConfigError(f"Each listener must have a different name, {option}: {','.join(texts)}")
    return tuple(found)


def check_ports(listeners: Sequence[Listener]) -> None:
    """Refuse listeners that would bind one port twice; IPv4 and IPv6 addresses may share one."""
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in listeners:
        if listener.port:
            by_port[listener.port].append(listener)
    for port, sharing in by_port.items():
        versions = sorted(_ip_version(listener.host) for listener in sharing)
        if len(sharing) > 1 and versions != [4, 6]:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 address "
                f"and the other IPv6 address, listeners: {','.join(map(str, sharing))}, port: {port}"
            )


def _ip_version(host: str) -> int:
    """4 or 6 for an address, 0 for a name or nothing."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def reachable(advertised: Sequence[Listener], bound_ports: Mapping[str, int]) -> tuple[Listener, ...]:
    """What clients are told: an empty host becomes this machine's name, port 0 the one that was bound."""
    return tuple(
        listener._replace(
            host=listener.host or socket.getfqdn(),
            port=listener.port or bound_ports.get(listener.name, 0),
        )
        for listener in advertised
    )
