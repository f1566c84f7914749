"""Options of single groups (``kafka-configs --entity-type groups``); the broker's where a group has none."""

from __future__ import annotations

from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.image import MetadataImage


class GroupConfigs:
    """Looks options up for a group."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def int(self, group_id: str, name: str) -> int:
        """An option such as ``consumer.session.timeout.ms``; the broker's has ``group.`` in front."""
        return self._config.int(f"group.{name}")
