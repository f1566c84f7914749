"""What a request to change quotas makes of an entity, by the rules of Kafka 4's controller.

A request is judged entity by entity: one that breaks a rule keeps all quotas that it had. Pure functions, but
that whoever calls ``plan_quota_changes`` has looked up which hosts there are; the handler has the outcome
written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from tidelog.config.client_quotas import (
    CLIENT_ID,
    CLIENT_LIMITS,
    IP,
    IP_LIMITS,
    LIMITS,
    USER,
    QuotaEntity,
    quota_entity,
    render_quota,
)
from tidelog.errors import ErrorCode, KafkaError

_FRACTION = 1e-6
_INTEGER_NAMES = {2**31 - 1: "an INT", 2**63 - 1: "a LONG"}

Names = tuple[tuple[str, str | None], ...]
"""The parts of an entity as a request has them: any kinds, in any order."""


class QuotaOp(NamedTuple):
    """One quota of an entity: a new value, or None to remove it."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    """What a request says about one entity."""

    names: Names
    ops: Sequence[QuotaOp]


class QuotaEdit(NamedTuple):
    """The changes of one entity, once they are known to be allowed."""

    entity: QuotaEntity
    values: Mapping[str, str | None]

    def edit(self, entries: Mapping[str, str]) -> dict[str, str]:
        """The entries of the entity's node after them."""
        edited = dict(entries)
        for key, value in self.values.items():
            if value is None:
                edited.pop(key, None)
            else:
                edited[key] = value
        return edited


def plan_quota_changes(
    alterations: Sequence[QuotaAlteration], unknown_hosts: Container[str] = ()
) -> list[QuotaEdit | KafkaError]:
    """The edit of each entity or why there is none, in order."""
    counts = Counter(frozenset(each.names) for each in alterations)
    outcomes: list[QuotaEdit | KafkaError] = []
    for names, ops in alterations:
        try:
            if counts[frozenset(names)] > 1 or len({op.key for op in ops}) < len(ops):
                raise _refusal(f"Ignoring duplicate entity {_shown(names)}")
            limits = _limits_of(names, unknown_hosts)
            # The credentials of a user are kept beside the quotas: only what is a quota can be removed.
            values = {op.key: _text(limits, op) for op in ops if op.value is not None or op.key in LIMITS}
            outcomes.append(QuotaEdit(quota_entity(dict(names)), values))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def _limits_of(names: Names, unknown_hosts: Container[str]) -> Mapping[str, int | None]:
    """The quotas that an entity can have; raises what is wrong with the entity."""
    if not names:
        raise _refusal("Invalid empty client quota entity")
    for kind, name in names:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refusal(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise _refusal(f"Empty {kind} not supported")
    known = dict(names)
    if IP not in known:
        return CLIENT_LIMITS
    if len(known) > 1:
        raise _refusal(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    if known[IP] is not None and known[IP] in unknown_hosts:
        raise _refusal(f"{known[IP]} is not a valid IP or resolvable host.")
    return IP_LIMITS


def _text(limits: Mapping[str, int | None], op: QuotaOp) -> str | None:
    """What is written of a quota; raises what is wrong with it."""
    key, value = op
    if value is None:
        return None
    if key not in limits:
        raise _refusal(f"Invalid configuration key {key}")
    if value <= 0:
        raise _refusal(f"Quota {key} must be greater than 0")
    if math.isnan(value):
        # Kafka takes it, and then nobody is throttled.
        raise _refusal(f"Quota {key} must be a number")
    largest = limits[key]
    if largest is not None:
        if value > float(largest):
            raise _refusal(f"Proposed value for {key} is too large for {_INTEGER_NAMES[largest]}.")
        if math.fmod(value, 1.0) > _FRACTION:
            raise _refusal(f"{key} cannot be a fractional value.")
        return str(min(int(value), largest))
    return render_quota(key, value)


def _shown(names: Names) -> str:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names)
    return f"ClientQuotaEntity(entries={{{entries}}})"


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
