"""DescribeConfigs, versions 1 to 4: options of topics, groups, brokers and subscriptions to
clients' metrics, and levels of loggers.

Behaviour as in Kafka: every option with its effective value and where it comes from, on request with the
places that stand behind it (synonyms, since version 1) and its documentation (since version 3); only the
keys asked for, all without any. A broker answers for itself, for the dynamic options of every broker (the
empty name) and for its loggers; of a group and of a subscription every option is told, whether it
exists or not. A resource type that does not exist refuses the whole request. A resource that is named twice
is described twice, of the same entries: a broker has many, and a name can come very often.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker import log_levels
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.config_access import require_config_access
from tidelog.broker.context import RequestContext
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.config_entries import ConfigEntry, ConfigSource
from tidelog.controller.config_changes import ResourceType
from tidelog.controller.topic_names import validate_topic_name
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API = ApiKey.DESCRIBE_CONFIGS
VERSIONS = (1, 4)

_TYPES = frozenset(map(int, ResourceType))
_THIS_BROKER = "this"

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was "
    "sent to an incompatible broker. See the broker logs for more details."
)


def handle(
    context: RequestContext,
    request: DescribeConfigsRequest,
    config: BrokerConfig,
    image: MetadataImage,
    dynamic_configs: DynamicConfigs,
    authorization: Authorization,
) -> Slices[DescribeConfigsResponse]:
    """Describe resource by resource."""
    for resource in request.resources:
        if resource.resource_type not in _TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED)
        yield
    options = _Options(config, image, dynamic_configs, {})
    response = DescribeConfigsResponse()
    for resource in request.resources:
        try:
            require_config_access(
                authorization,
                context.session,
                Operation.DESCRIBE_CONFIGS,
                resource.resource_type,
                resource.resource_name,
            )
        except KafkaError as error:
            response.results.append(_refusal(resource, error))
        else:
            response.results.append(_describe(options, request, resource))
        yield
    return response


Entries = list[DescribeConfigsResourceResult]


class _Options(NamedTuple):
    config: BrokerConfig
    image: MetadataImage
    dynamic: DynamicConfigs
    known: dict[tuple[int, str], Entries]
    """What was looked up for this request: what has the same entries has them in common."""


def _describe(
    options: _Options, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        owner = _owner(options, resource)
        configs = options.known.get(owner)
        if configs is None:
            configs = options.known[owner] = _configs(options, request, *owner)
    except KafkaError as error:
        return _refusal(resource, error)
    if resource.configuration_keys:
        wanted = set(resource.configuration_keys)
        configs = [config for config in configs if config.name in wanted]
    return DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
    )


def _owner(options: _Options, resource: DescribeConfigsResource) -> tuple[int, str]:
    """Whose entries they are: a broker's id can be written in many ways, groups without any share those."""
    kind, name = resource.resource_type, resource.resource_name
    match kind:
        case ResourceType.TOPIC:
            validate_topic_name(name)
            if name not in options.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return kind, name
        case ResourceType.BROKER:
            if name:
                _check_broker_id(name, options.config.node_id, " or empty string,")
            return kind, _THIS_BROKER if name else ""
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return kind, name if name in options.image.group_configs else ""
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            return kind, name if name in options.image.client_metrics else ""
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_broker_id(name, options.config.node_id, "")
            return kind, _THIS_BROKER
        case other:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {ResourceType(other).name}"
            )


def _configs(options: _Options, request: DescribeConfigsRequest, kind: int, name: str) -> Entries:
    match kind:
        case ResourceType.TOPIC:
            entries = options.dynamic.describe_topic(name)
        case ResourceType.BROKER if name:
            entries = options.dynamic.describe_broker()
        case ResourceType.BROKER:
            entries = options.dynamic.describe_default_broker()
        case ResourceType.GROUP:
            entries = options.dynamic.describe_group(name)
        case ResourceType.CLIENT_METRICS:
            entries = options.dynamic.describe_client_metrics(name)
        case _:
            return [_logger(logger, level) for logger, level in log_levels.levels().items()]
    return [_config(entry, request) for entry in entries]


def _check_broker_id(name: str, broker_id: int, alternative: str) -> None:
    try:
        described = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None
    if described != broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker_id}{alternative} but received {name}",
        )


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _logger(name: str, level: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    )


def _refusal(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
