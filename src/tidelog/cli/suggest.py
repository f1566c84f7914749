"""Which config somebody may have meant: brokers refuse misspelt names without a hint.

The names that exist are asked of the cluster, so that they are right for its version and kind.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ConfigResult, ResourceType
from tidelog.errors import ErrorCode, KafkaError

_HINT = "did you mean"
_COMPLETE = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER)


async def with_suggestion(
    admin: AsyncAdmin, error: KafkaError, resource: ConfigResource | None, names: Collection[str]
) -> KafkaError:
    """``error``, with a similar name if one of ``names`` is unknown to ``resource`` (None: a new topic)."""
    if error.code is not ErrorCode.INVALID_CONFIG or _HINT in error.message.lower():
        return error
    resource = resource or await _some_topic(admin)
    if resource is None:
        return error
    described = (await admin.describe_configs([resource]))[0]
    known = {entry.name for entry in described.entries}
    for name in names:
        hint = _hint(name, known)
        if hint:
            return KafkaError(error.code, f"{error.message.rstrip('.')}{hint}")
    return error


async def unknown_names(
    admin: AsyncAdmin, results: Collection[ConfigResult], names: Collection[str]
) -> list[KafkaError]:
    """An error for each of ``names`` that is no config of what was described: brokers just leave it out."""
    # The others answer with what somebody has set: a name that is missing there may be right.
    complete = [
        each
        for each in results
        if each.error is None and each.resource.type in _COMPLETE and each.resource.name
    ]
    found = {entry.name for each in results for entry in each.entries}
    missing = [name for name in names if name not in found]
    if not complete or not missing:
        return []
    resource = complete[0].resource
    known = {entry.name for entry in (await admin.describe_configs([resource]))[0].entries}
    return [
        KafkaError(ErrorCode.INVALID_CONFIG, f"{resource} has no config {name!r}{_hint(name, known)}")
        for name in missing
    ]


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; {_HINT} {close[0]!r}?" if name not in known and close else ""


async def _some_topic(admin: AsyncAdmin) -> ConfigResource | None:
    topics = await admin.list_topics(include_internal=True)
    return ConfigResource(ResourceType.TOPIC, topics[0].name) if topics else None
