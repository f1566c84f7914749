"""Which config somebody may have meant: brokers refuse misspelt names without a hint.

The names that exist are asked of the cluster, so that they are right for its version and kind.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ResourceType
from tidelog.errors import ErrorCode, KafkaError

_HINT = "did you mean"


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
        close = difflib.get_close_matches(name, known, n=1)
        if name not in known and close:
            return KafkaError(error.code, f"{error.message.rstrip('.')}; {_HINT} {close[0]!r}?")
    return error


async def _some_topic(admin: AsyncAdmin) -> ConfigResource | None:
    topics = await admin.list_topics(include_internal=True)
    return ConfigResource(ResourceType.TOPIC, topics[0].name) if topics else None
