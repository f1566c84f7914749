"""ApiVersions 0 to 4: which APIs and versions this broker serves, and the features of the cluster.

Behaviour as in Kafka: versions 3 and up carry the client's software name and version, which must be made of
letters, digits, dots and dashes (else INVALID_REQUEST); features whose lowest level is 0 are left out below
version 4 (KAFKA-17492). A version that does not exist is answered in version 0 with UNSUPPORTED_VERSION and
the one entry that helps, the range of ApiVersions itself (KIP-511).

Only what the dispatch table serves is advertised, in the ranges of ``wire/api``; the APIs of clients'
telemetry once somebody has subscribed to some, as in Kafka once there is a receiver. Clients to which they
are shown ask for subscriptions from then on, and librdkafka writes a line about it for each of them.
"""

from __future__ import annotations

import re

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import ServedApis
from tidelog.controller.features import SUPPORTED_FEATURES
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API = ApiKey.API_VERSIONS
VERSIONS = (0, 4)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SOFTWARE_SINCE = 3
_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_LEVEL_ZERO_SINCE = 4


def handle(
    context: RequestContext, request: ApiVersionsRequest, image: MetadataImage, served: ServedApis
) -> ApiVersionsResponse:
    """Tell what is served; remembers what software the client says it is."""
    if context.version >= _SOFTWARE_SINCE:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software = software
    return ApiVersionsResponse(
        api_keys=[_entry(key) for key in served if image.client_metrics or key not in _TELEMETRY],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, levels in SUPPORTED_FEATURES.items()
            if levels.min > 0 or context.version >= _LEVEL_ZERO_SINCE
        ],
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in image.features.items()
            if level > 0
        ],
        finalized_features_epoch=image.features_epoch,
    )


def refuse(request: ApiVersionsRequest | None, error: KafkaError) -> ApiVersionsResponse:
    """An error; with UNSUPPORTED_VERSION, the versions of ApiVersions itself."""
    known = [_entry(API)] if error.code == ErrorCode.UNSUPPORTED_VERSION else []
    return ApiVersionsResponse(error_code=error.code, api_keys=known)


def _entry(key: ApiKey) -> ApiVersion:
    api = API_TABLE[key]
    return ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.advertised_max)
