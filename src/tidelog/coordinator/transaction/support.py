"""What the shards of the transaction coordinator share: configuration, topics, producer ids, markers."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.transaction.markers import MarkerWriter
from tidelog.coordinator.transaction.producer_id_supply import ProducerIdSupply
from tidelog.metadata.image import MetadataImage

_FEATURE = "transaction.version"


class TransactionSupport(NamedTuple):
    """Handed to every shard, so that tests can hand in their own."""

    config: BrokerConfig
    """Options are read when they are needed, because some change while the broker runs."""
    image: MetadataImage
    producer_ids: ProducerIdSupply
    markers: MarkerWriter

    @property
    def transaction_version(self) -> int:
        """The cluster's ``transaction.version``: 1 has flexible records, 2 an epoch for each transaction."""
        return self.image.features.get(_FEATURE, 0)
