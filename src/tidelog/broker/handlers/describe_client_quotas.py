"""DescribeClientQuotas 0 to 1: the quotas of users, client ids and IP addresses that a filter matches.

Behaviour as in Kafka 4: a component of the filter asks for a name, for the default, or for any of a kind; a
strict filter leaves out entities of other kinds. Answers are sorted, where Kafka's are in no order.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.context import RequestContext
from tidelog.config.client_quotas import CLIENT_ID, IP, USER, QuotaEntity
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.slices import Slices
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

API = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = (0, 1)

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_TYPE_NAMES = {_DEFAULT: "MATCH_TYPE_DEFAULT", _SPECIFIED: "MATCH_TYPE_SPECIFIED"}


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest, image: MetadataImage
) -> Slices[DescribeClientQuotasResponse]:
    """List what matches; others have their turn in between."""
    exact, any_name = _filter(request.components)
    entries: list[EntryData] = []
    for entity in sorted(image.quotas, key=_sort_key):
        yield
        quotas = image.quotas.get(entity)
        if quotas is not None and _matches(entity, exact, any_name, strict=request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


def refuse(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    """The refusal of the whole."""
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message or None, entries=None
    )


def _filter(components: list[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """The names that are asked for by kind, None for the default, and the kinds of which any name will do."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in components:
        kind, match = component.entity_type, component.match_type
        if not kind:
            raise _refusal("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match == _EXACT and component.match is None:
            raise _refusal("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match in _TYPE_NAMES and component.match is not None:
            raise _refusal(f"Request specified {_TYPE_NAMES[match]}, but also specified a match string.")
        if match not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _refusal(f"Unknown match type {match}")
        if match == _SPECIFIED:
            any_name.add(kind)
        else:
            exact[kind] = component.match
    kinds = exact.keys() | any_name
    if IP in kinds and len(kinds) > 1:
        raise _refusal(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    return exact, any_name


def _matches(
    entity: QuotaEntity, exact: Mapping[str, str | None], any_name: set[str], *, strict: bool
) -> bool:
    names = dict(entity)
    if strict and len(names) != len(exact) + len(any_name):
        return False
    return any_name <= names.keys() and all(
        kind in names and names[kind] == name for kind, name in exact.items()
    )


def _sort_key(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
