"""Quotas of users, client ids and IP addresses (KIP-546), as :class:`AsyncAdmin` lists and changes them.

An entity is a mapping of kinds (``user``, ``client-id``, ``ip``) to names; None in place of a name is the
default of all who have no quota of their own. Quotas are numbers by Kafka's names: ``producer_byte_rate`` and
``consumer_byte_rate`` in bytes a second, ``request_percentage``, ``controller_mutation_rate`` in partitions a
second, and of addresses ``connection_creation_rate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.client._network.cluster import Cluster
from tidelog.client.errors import error_from
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity = Mapping[str, str | None]

_EXACT, _DEFAULT, _ANY = 0, 1, 2


class AnyName:
    """The type of ``ANY_NAME``."""

    def __repr__(self) -> str:
        return "ANY_NAME"


ANY_NAME = AnyName()
"""In a filter: whoever has a quota of this kind, the default included."""


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    """The quotas of an entity."""

    entity: Entity
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """New values for quotas of an entity; None removes one."""

    entity: Entity
    quotas: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaResult(Outcome):
    """What became of the changes of one entity: all of them, or none."""

    entity: Entity
    error: KafkaError | None = None


def entity_text(entity: Entity) -> str:
    """An entity in words for a person."""
    parts = (f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
    return " with ".join(parts) or "nobody"


async def describe_client_quotas(
    cluster: Cluster, wanted: Mapping[str, str | AnyName | None], *, strict: bool
) -> list[ClientQuotas]:
    """See :meth:`AsyncAdmin.describe_client_quotas`."""
    components = []
    for kind, name in wanted.items():
        if isinstance(name, AnyName):
            components.append(ComponentData(entity_type=kind, match_type=_ANY, match=None))
        else:
            match_type = _DEFAULT if name is None else _EXACT
            components.append(ComponentData(entity_type=kind, match_type=match_type, match=name))
    response = await cluster.request_any(
        DescribeClientQuotasRequest(components=components, strict=strict), DescribeClientQuotasResponse
    )
    error = error_from(response.error_code, response.error_message, "the quotas of clients")
    if error is not None:
        raise error
    return [
        ClientQuotas(
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in response.entries or ()
    ]


async def alter_client_quotas(
    cluster: Cluster, alterations: Sequence[QuotaAlteration], *, validate_only: bool
) -> list[QuotaResult]:
    """See :meth:`AsyncAdmin.alter_client_quotas`."""
    entries = [
        AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in each.entity.items()],
            ops=[
                OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                for key, value in each.quotas.items()
            ],
        )
        for each in alterations
    ]
    response = await cluster.request_controller(
        AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
        AlterClientQuotasResponse,
        lambda answer: (each.error_code for each in answer.entries),
    )
    results = []
    for each in response.entries:
        entity = {part.entity_type: part.entity_name for part in each.entity}
        error = error_from(each.error_code, each.error_message, f"the quotas of {entity_text(entity)}")
        results.append(QuotaResult(entity, error))
    return results
