"""Features of a cluster (KIP-584): which levels brokers support, which are finalized, and changing them.

Brokers tell of both in ApiVersions. Since version 2 of UpdateFeatures a refusal is of all updates at once.
Called by ``AsyncAdmin``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.cluster_resources import (
    FeatureMetadata,
    FeatureResult,
    FeatureUpdate,
    UpgradeType,
    VersionRange,
)
from tidelog.client.errors import error_from
from tidelog.errors import ErrorCode, KafkaError
from tidelog.version import __version__
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES_SINCE = 1


async def describe_features(cluster: Cluster, broker_id: int | None) -> FeatureMetadata:
    """See :meth:`AsyncAdmin.describe_features`."""
    request = ApiVersionsRequest(client_software_name="tidelog", client_software_version=__version__)
    if broker_id is None:
        response = await cluster.request_any(request, ApiVersionsResponse)
    else:
        response = await cluster.request_node(broker_id, request, ApiVersionsResponse)
    error = error_from(response.error_code, None, "the features of the cluster")
    if error is not None:
        raise error
    return FeatureMetadata(
        {each.name: VersionRange(each.min_version, each.max_version) for each in response.supported_features},
        {
            each.name: VersionRange(each.min_version_level, each.max_version_level)
            for each in response.finalized_features
        },
        response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
    )


async def update_features(
    cluster: Cluster, updates: Mapping[str, FeatureUpdate], *, validate_only: bool
) -> list[FeatureResult]:
    """See :meth:`AsyncAdmin.update_features`."""
    deadline = cluster.deadline()

    def build(version: int) -> UpdateFeaturesRequest:
        if version < _UPGRADE_TYPES_SINCE and validate_only:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "this broker is older than Kafka 3.3 and cannot check an update without making it",
            )
        return UpdateFeaturesRequest(
            feature_updates=[_update(name, update, version) for name, update in updates.items()],
            timeout_ms=deadline.remaining_ms,
            validate_only=validate_only,
        )

    response = await cluster.request_controller(
        build, UpdateFeaturesResponse, lambda r: (r.error_code,), deadline
    )
    refusal = error_from(response.error_code, response.error_message, "the update of features")
    own = {
        each.feature: error_from(each.error_code, each.error_message, f"feature {each.feature!r}")
        for each in response.results
    }
    return [FeatureResult(name, refusal or own.get(name)) for name in updates]


def _update(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    if version >= _UPGRADE_TYPES_SINCE:
        return FeatureUpdateKey(
            feature=name, max_version_level=update.max_version_level, upgrade_type=update.upgrade_type
        )
    return FeatureUpdateKey(
        feature=name,
        max_version_level=update.max_version_level,
        allow_downgrade=update.upgrade_type is not UpgradeType.UPGRADE,
    )
