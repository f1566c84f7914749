"""What was done in the console."""

from __future__ import annotations

import asyncio

import msgspec

from tidelog.console.api.endpoint import Call, reads, require_whole_cluster
from tidelog.console.auth.audit import AuditEntry

_ENTRIES = 500


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many entries."""

    limit: int = 200


@reads("/clusters/{cluster}/audit", "Changes made through this console, newest first.", AuditQuery)
async def audit(call: Call, asked: AuditQuery) -> list[AuditEntry]:
    """Of this cluster."""
    require_whole_cluster(call)
    limit = max(1, min(asked.limit, _ENTRIES))
    return await asyncio.to_thread(call.console.audit.newest, limit, call.cluster.name)


ENDPOINTS = (audit,)
