"""Access to configs: those of topics and groups are theirs, everything else is the cluster's.

Called by the handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.controller.config_changes import ResourceType as ConfigType
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.session import Session


def require_config_access(
    authorization: Authorization, session: Session, operation: Operation, config_type: int, name: str
) -> None:
    """Raise the refusal unless a client may read or change the configs of a resource."""
    if config_type == ConfigType.TOPIC:
        authorization.require(session, operation, ResourceType.TOPIC, name)
    elif config_type == ConfigType.GROUP:
        authorization.require(session, operation, ResourceType.GROUP, name)
    elif config_type in ConfigType.__members__.values():
        authorization.require(session, operation, ResourceType.CLUSTER)
