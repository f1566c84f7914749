"""The throttles of replication of one broker, kept as its options and those of the topics say.

``leader`` is asked when followers fetch here, ``follower`` when this broker fetches; see
``replication/throttle``. Options that cannot be read are no throttle: they are refused when they are set, so
only another version can have written them.
"""

from __future__ import annotations

from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.topic_options import TOPIC_OPTIONS
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.options import BadValueError
from tidelog.replication.throttle import ReplicationThrottle

_SIDES = ("leader", "follower")


class Throttles:
    """Both directions."""

    def __init__(self, config: BrokerConfig, clock: Clock, feed: Feed, configs: DynamicConfigs) -> None:
        self._config = config
        self._image = feed.image
        windows = config.int("replication.quota.window.num")
        window_ms = config.int("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationThrottle(clock, windows=windows, window_ms=window_ms)
        self.follower = ReplicationThrottle(clock, windows=windows, window_ms=window_ms)
        self._set_rates()
        for topic in feed.image.topic_configs:
            self._set_topic(topic)
        self._unsubscribe = feed.subscribe(self._changed)
        configs.on_broker_change(lambda _: self._set_rates())

    def close(self) -> None:
        """Follow the options no more."""
        self._unsubscribe()

    def _set_rates(self) -> None:
        self.leader.bytes_per_second = self._config.int("leader.replication.throttled.rate")
        self.follower.bytes_per_second = self._config.int("follower.replication.throttled.rate")

    def _changed(self, delta: ImageDelta) -> None:
        for topic in delta.topic_configs:
            self._set_topic(topic)

    def _set_topic(self, topic: str) -> None:
        entries = self._image.topic_config(topic)
        for side, throttle in zip(_SIDES, (self.leader, self.follower), strict=True):
            name = f"{side}.replication.throttled.replicas"
            replicas: object = ()
            if name in entries:
                try:
                    replicas = TOPIC_OPTIONS[name].parse(entries[name])
                except BadValueError:
                    replicas = ()
            assert isinstance(replicas, tuple)
            throttle.set_replicas(topic, replicas, self._config.node_id)
