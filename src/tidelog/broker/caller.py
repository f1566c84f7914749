"""Who sends a request to the group coordinator: made from the request's context by the handlers of groups."""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.group import Caller


def caller_of(context: RequestContext) -> Caller:
    """The client as members are known by; without a client id it has an empty one."""
    return Caller(context.client_id or "", f"/{context.client_address}", context.version)
