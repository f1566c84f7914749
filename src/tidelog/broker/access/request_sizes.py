"""How long a request may be, by its API and its client: known from a few bytes, before the rest is received.

``socket.request.max.bytes`` bounds every request. It is meant for Produce, and for what brokers send each
other; all others may have ``tidelog.request.max.bytes``, and a push of telemetry twice
``telemetry.max.bytes``, so that one that is a little too large is still answered with TELEMETRY_TOO_LARGE. A
client without the right to do anything by an API that is about the cluster as a whole may send just enough
of it to be answered with its refusal. Longer requests end their connection, without being received.

Asked by ``broker/network/inbox`` about requests of more than 64 KB.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.required_access import Need, is_about_cluster, needs_of_request
from tidelog.config.broker_config import BrokerConfig
from tidelog.security.acls.model import CLUSTER_NAME, Operation
from tidelog.security.session import Session
from tidelog.wire.api import ApiKey

_HEADER_BYTES: Final = 64 * 1024
"""More than any header and the small fields of a request take."""
_ANY = "socket.request.max.bytes"
_OTHERS = "tidelog.request.max.bytes"
_TELEMETRY = "telemetry.max.bytes"


class SizeLimit(NamedTuple):
    """The longest request of an API, and the reason."""

    max_bytes: int
    reason: str


class _Rule(NamedTuple):
    limit: SizeLimit
    needs: tuple[Need, ...] = ()
    """The right to any of these is needed for more than a refusal."""


class RequestSizes:
    """The limits of one broker."""

    def __init__(self, config: BrokerConfig, authorization: Authorization) -> None:
        self._authorization = authorization
        most = config.int(_ANY)

        def limit(max_bytes: int, option: str) -> SizeLimit:
            name, allowed = (_ANY, most) if max_bytes >= most else (option, max_bytes)
            return SizeLimit(allowed, f"{name} allows {allowed}")

        self._others = _Rule(limit(config.int(_OTHERS), _OTHERS))
        any_size = limit(most, _ANY)
        self._rules = {int(ApiKey.PRODUCE): _Rule(any_size)}
        telemetry_bytes = 2 * config.int(_TELEMETRY) + _HEADER_BYTES
        self._rules[int(ApiKey.PUSH_TELEMETRY)] = _Rule(limit(telemetry_bytes, _TELEMETRY))
        for key in filter(is_about_cluster, ApiKey):
            needs = needs_of_request(key)
            of_brokers = any(need.operation is Operation.CLUSTER_ACTION for need in needs)
            self._rules[int(key)] = _Rule(any_size if of_brokers else self._others.limit, needs)

    def limit_of(self, session: Session, key: int) -> SizeLimit:
        """The limit of requests with an API key, which need not exist."""
        limit, needs = self._rules.get(key, self._others)
        if needs and not any(self._may(session, need) for need in needs):
            operation = needs[0].operation.name
            return SizeLimit(
                _HEADER_BYTES, f"a client without {operation} on the cluster may send {_HEADER_BYTES}"
            )
        return limit

    def _may(self, session: Session, need: Need) -> bool:
        operations = (need.operation,) if need.instead is None else (need.operation, need.instead)
        return any(
            self._authorization.allows(session, each, need.kind, CLUSTER_NAME, quiet=True)
            for each in operations
        )
