"""UpdateFeatures, versions 0 to 2: finalizes feature levels for the cluster.

Behaviour as a Kafka 4 controller's: one update that is refused refuses all of them, in the top-level error;
versions 0 and 1 answer a success for each feature too, with the message NONE, as Kafka does. Version 0 has
``allow_downgrade`` where later ones have an upgrade type. Which features there are is in
``controller/features``.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.controller.features import FeatureUpdate, UpgradeType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

API = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)

_LAST_WITH_RESULTS = 1


async def handle(
    context: RequestContext, request: UpdateFeaturesRequest, admin: Admin
) -> UpdateFeaturesResponse:
    """Finalize all levels, or none."""
    await admin.update_features(
        [_update(each, context.version) for each in request.feature_updates],
        validate_only=request.validate_only,
    )
    names = (
        [each.feature for each in request.feature_updates] if context.version <= _LAST_WITH_RESULTS else []
    )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message=ErrorCode.NONE.name) for name in names],
    )


def refuse(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    """Nothing was changed."""
    message = error.message
    if error.code is ErrorCode.INVALID_UPDATE_VERSION:
        message = f"The update failed for all features since the following feature had an error: {message}"
    return UpdateFeaturesResponse(error_code=error.code, error_message=message or None)


def _update(each: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = each.upgrade_type
    if version == 0:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if each.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(each.feature, each.max_version_level, upgrade_type)
