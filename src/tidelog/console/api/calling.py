"""What happens around every call of an endpoint, whoever it comes from: rights before, the audit log after.

Browsers come by ``web``, assistants by ``mcp``; both call :func:`perform`.
"""

from __future__ import annotations

import asyncio

import msgspec

from tidelog.console.api.endpoint import Call, Endpoint
from tidelog.console.auth.audit import LOGIN, AuditEntry, now_ms
from tidelog.console.auth.person import ANONYMOUS_PERSON
from tidelog.console.refusal import Refusal, forbidden, refusal_of
from tidelog.console.settings import Role


async def perform(endpoint: Endpoint, call: Call, asked: msgspec.Struct) -> object:
    """Do what is asked, if the person may; raises a refusal. A change is noted, also one that was refused."""
    try:
        require_right(endpoint, call)
        answer = await endpoint.handle(call, asked)
    except asyncio.CancelledError:
        note(endpoint, call, "the caller disconnected; the change may have been made")
        raise
    except Exception as error:
        refusal = refusal_of(error)
        note(endpoint, call, str(refusal))
        raise refusal from None
    note(endpoint, call, "done")
    return answer


def require_right(endpoint: Endpoint, call: Call) -> None:
    """Whether the person may call it at all; the endpoint may ask for more."""
    if endpoint.role > Role.NONE and call.console.person(call.session) is None:
        raise Refusal("log in first", 401, "LOGIN_NEEDED")
    if "cluster" in call.path:
        if call.person.role(call.path["cluster"]) < Role.VIEWER:
            raise forbidden(f"{call.person.name} has no access to cluster {call.path['cluster']}")
        call.watched = call.console.cluster(call.path["cluster"], call.person)
        call.require(endpoint.role, call.path.get("topic"))


def note(endpoint: Endpoint, call: Call, outcome: str) -> None:
    """Write to the audit log what a change came to; of strangers only that they tried to log in.

    Whatever else strangers ask for changes nothing, and they could fill the log with it.
    """
    if not endpoint.action or not endpoint.is_noted:
        return
    is_anonymous = call.person is ANONYMOUS_PERSON
    if is_anonymous and endpoint.action != LOGIN:
        return
    target = next((call.path[each] for each in ("topic", "group", "broker", "id") if each in call.path), "")
    cluster, details = call.path.get("cluster", ""), call.details
    if cluster and cluster not in call.console.clusters:
        cluster, details = "", {**details, "cluster": cluster}
    entry = AuditEntry(
        now_ms(),
        call.person.name,
        call.address,
        cluster,
        endpoint.action,
        target or str(call.details.get("topic", "")),
        outcome,
        details,
    )
    if is_anonymous:
        call.console.audit.note_failed_login(entry)
    else:
        call.console.audit.note(entry)
