"""The topics that nobody asks for by name: what they look like when the broker creates them by itself.

An unknown topic gets the broker's defaults. The two internal topics get settings of their own: compacted,
in small segments, because a coordinator reads them whole when it starts.

Difference: where nobody has set their replication factor and the metadata is embedded, which makes for a
cluster of one broker, they get one replica; Kafka would refuse to make three.
"""

from __future__ import annotations

from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.topics import NewTopic
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


def auto_topic(name: str, config: BrokerConfig) -> NewTopic:
    """The topic to create when ``name`` is needed and not there."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return NewTopic(
            name,
            config.int("offsets.topic.num.partitions"),
            _replicas("offsets.topic.replication.factor", config),
            configs=internal_configs(name, config),
        )
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name,
            config.int("transaction.state.log.num.partitions"),
            _replicas("transaction.state.log.replication.factor", config),
            configs=internal_configs(name, config),
        )
    return NewTopic(name)


def _replicas(option: str, config: BrokerConfig) -> int:
    is_alone = config.optional_str("zookeeper.connect") is None
    return 1 if is_alone and option not in config.raw else config.int(option)


def internal_configs(name: str, config: BrokerConfig) -> dict[str, str]:
    """The overrides of an internal topic; none for any other."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
            "compression.type": "producer",
        }
    if name == TRANSACTION_STATE_TOPIC:
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
            "unclean.leader.election.enable": "false",
        }
    return {}
