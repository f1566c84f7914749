"""Quotas of clients as they are kept: whom a quota is for, which quotas there are, what values they take.

A quota is for an *entity*: a user, a client id, both together, or an IP address; in the place of a name there
may be the default of all who have none of their own. Kafka keeps them among the configs of users, clients and
addresses (``znodes.quota_path``), as text by the names of ``LIMITS``; a user's node has the user's SCRAM
credentials too.

``controller/quota_changes`` says what a request may change, the image has what is in force, and
``broker/quotas`` enforces it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger(__name__)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1

CLIENT_LIMITS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: MAX_LONG,
    CONSUMER_BYTE_RATE: MAX_LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The quotas of users and client ids: the largest value of those that are whole numbers."""
IP_LIMITS: Final[Mapping[str, int | None]] = {CONNECTION_CREATION_RATE: MAX_INT}
"""Those of IP addresses."""
LIMITS: Final[Mapping[str, int | None]] = {**CLIENT_LIMITS, **IP_LIMITS}

BOUNDS_AT_ZERO: Final = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE, CONNECTION_CREATION_RATE})
"""Quotas of which 0 leaves a client as good as nothing, as in Kafka 3.9, where one may be set. Byte rates of
0 bound nobody there, as its pauses overflow."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Kinds and names, in the order user, client id, IP address; None is the default of those without a quota."""

_ORDER = {USER: 0, CLIENT_ID: 1, IP: 2}


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity of these kinds and names."""
    return tuple(sorted(names.items(), key=lambda part: _ORDER[part[0]]))


def parse_quotas(path: str, entries: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the entries of a node; what cannot be one is passed over."""
    quotas: dict[str, float] = {}
    for name in LIMITS.keys() & entries.keys():
        try:
            value = float(entries[name])
        except ValueError:
            value = math.nan
        if value > 0 or (value == 0 and name in BOUNDS_AT_ZERO):
            quotas[name] = value
        else:
            logger.error(
                "%s of metadata node %s is %r, and is passed over: set it to something above 0",
                name,
                path,
                entries[name],
            )
    return quotas


def render_quota(name: str, value: float) -> str:
    """A quota as Kafka writes it: whole numbers, or Java's decimals."""
    if LIMITS[name] is not None:
        return str(round(value))
    if math.isinf(value):
        return "Infinity"
    if 1e-3 <= value < 1e7:
        return repr(value)
    shortest = next(text for digits in range(18) if float(text := f"{value:.{digits}e}") == value)
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
