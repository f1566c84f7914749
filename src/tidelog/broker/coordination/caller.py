"""Who sends a request to the group coordinator: made from the request's context by the handlers of groups."""

from __future__ import annotations

from functools import partial

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.group import Caller
from tidelog.security.acls.model import Operation


def caller_of(context: RequestContext, authorization: Authorization | None = None) -> Caller:
    """The client as members are known by; without a client id it has an empty one.

    ``authorization`` where the request may have topics looked up that it does not name.
    """
    caller = Caller(context.client_id or "", f"/{context.client_address}", context.version)
    if authorization is None or not authorization.is_on:
        return caller
    describes = partial(authorization.allows_topic, context.session, Operation.DESCRIBE, quiet=True)
    return caller._replace(may_describe=describes)
