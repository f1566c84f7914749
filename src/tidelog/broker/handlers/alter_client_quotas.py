"""AlterClientQuotas 0 to 1: set and remove quotas of users, client ids and IP addresses.

Behaviour as in Kafka 4: entities succeed and fail one by one, each as a whole; values must be above 0, those
of byte rates and connections whole numbers; to remove what is no quota changes nothing; what names an IP
address may be a host that can be resolved. Any broker of a cluster does it, not the controller alone, and the
quotas hold on every broker when it has read the notice; here they do when the answer leaves.

Deviations: an entity that a request names twice keeps its quotas, of which Kafka changes the first and
answers with the same refusal; a value that is no number is refused, where Kafka takes it; answers are in the
order of the request.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.config.client_quotas import IP
from tidelog.controller.quota_changes import QuotaAlteration, QuotaOp, plan_quota_changes
from tidelog.errors import KafkaError
from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
)

API = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = (0, 1)

_BATCH_SIZE = 100


async def handle(
    context: RequestContext, request: AlterClientQuotasRequest, admin: Admin
) -> AlterClientQuotasResponse:
    """Change what is asked for, entity by entity."""
    alterations = [_alteration(entry) async for entry in yielding_every(_BATCH_SIZE, request.entries)]
    unknown = await _unknown_hosts(alterations)
    if len(alterations) > _BATCH_SIZE:
        outcomes = await asyncio.to_thread(plan_quota_changes, alterations, unknown)
    else:
        outcomes = plan_quota_changes(alterations, unknown)
    response = AlterClientQuotasResponse()
    answered: set[frozenset[tuple[str, str | None]]] = set()
    async for alteration, outcome in yielding_every(_BATCH_SIZE, zip(alterations, outcomes, strict=True)):
        names = frozenset(alteration.names)
        if names in answered:
            continue
        answered.add(names)
        error = outcome if isinstance(outcome, KafkaError) else None
        if not isinstance(outcome, KafkaError) and not request.validate_only:
            try:
                await admin.change_quotas(outcome.entity, outcome.edit)
            except KafkaError as refusal:
                error = refusal
        response.entries.append(_result(alteration, error))
    return response


def _alteration(entry: AlterClientQuotasRequestEntryData) -> QuotaAlteration:
    names = {part.entity_type: part.entity_name for part in entry.entity}
    ops = [QuotaOp(op.key, None if op.remove else op.value) for op in entry.ops]
    return QuotaAlteration(tuple(names.items()), ops)


async def _unknown_hosts(alterations: Sequence[QuotaAlteration]) -> set[str]:
    known: dict[str, bool] = {}
    async for alteration in yielding_every(_BATCH_SIZE, alterations):
        for kind, name in alteration.names:
            if kind == IP and name and name not in known:
                known[name] = await _is_known(name)
    return {name for name, is_known in known.items() if not is_known}


async def _is_known(host: str) -> bool:
    """Whether a host is an address, or has one."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        try:
            await asyncio.get_running_loop().getaddrinfo(host, None)
        except (OSError, UnicodeError):
            return False
    return True


def _result(alteration: QuotaAlteration, error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message or None,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in alteration.names],
    )
