"""Configuration that changes while the broker runs: checked, kept in the store, told to those it concerns.

Precedence, highest first: a topic's or group's own entries, this broker's dynamic entries, those of every
broker, the properties file, the default. Changes go to ``/config/topics/T``, ``/config/groups/G``,
``/config/client-metrics/S`` and ``/config/brokers/N`` (or ``<default>``); they take effect when the image
has them, whoever wrote them. What is kept here without a ``write`` is kept by a broker alone; in a cluster
``broker/cluster/admin`` writes.

Invariant: what is in the store may be wrong (another version wrote it), what is in effect never is: an
entry that cannot be used is passed over with one log line, and the next layer's value holds; one that is
below a bound which Kafka 3.9 did not have counts as that bound. Such entries stay as they are stored, and
hinder no change of others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import check_subscription
from tidelog.config.client_quotas import QuotaEntity
from tidelog.config.config_entries import (
    BrokerLayers,
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from tidelog.config.options.broker_options import option_of
from tidelog.config.options.listener_options import ListenerConfig, listener_of
from tidelog.config.options.log_options import raised
from tidelog.config.options.tls_options import RECONFIGURABLE, TLS_OPTIONS
from tidelog.config.options.topic_options import TOPIC_OPTIONS, TopicConfig, check_topic_overrides
from tidelog.config.options.unsupported_options import (
    DYNAMIC_UNSUPPORTED,
    is_protection,
    is_unsupported,
    unmet_protection,
)
from tidelog.config.secret_entries import SecretEntries
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.metadata.empty_configs import drop_empty
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.group_configs import check_group
from tidelog.metadata.store import MetadataStore, NoNode, TooLargeError, put
from tidelog.metadata.znodes import znodes
from tidelog.options import BadValueError

logger = logging.getLogger(__name__)

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes the new entries of a config out of those that there are."""

BrokerSubscriber = Callable[[frozenset[str]], None]
TopicSubscriber = Callable[[str, TopicConfig], None]

_TLS = frozenset(option.name for option in TLS_OPTIONS)


class ListenerStores(Protocol):
    """The keys and certificates of the listeners, as far as changes of options concern them."""

    async def prepare(self, options_of: Callable[[str], ListenerConfig]) -> Callable[[], None]:
        """Read the stores that options, as they would be, name; the function that puts them to use.

        Raises :class:`ConfigError` if one cannot be used.
        """

    def look_again(self) -> None:
        """Options may have changed."""


class DynamicConfigs:
    """The configs of topics, of groups and of this broker, over one store."""

    def __init__(self, store: MetadataStore, feed: Feed, config: BrokerConfig) -> None:
        """Apply what the store holds for this broker, and follow it from now on.

        Raises :class:`ConfigError` if that asks for protection that there is not.
        """
        self._store = store
        self._image = feed.image
        self._config = config
        self._secrets = SecretEntries(config)
        self._broker_subscribers: list[BrokerSubscriber] = []
        self._topic_subscribers: list[TopicSubscriber] = []
        self._warnings: dict[str, set[str]] = {}
        """What was logged of a topic's config, as long as it holds."""
        self.listener_stores: ListenerStores | None = None
        """Asked before the stores of listeners change, and told when they may have; set by the broker."""
        for which in (config.node_id, None):
            for sentence in unmet_protection(self._image.broker_config(which)):
                path = znodes.broker_config_path(which)
                raise ConfigError(f"the dynamic options of {path} cannot be honoured: {sentence}")
        self._apply_broker()
        self._unsubscribe = feed.subscribe(self._on_change)

    def on_broker_change(self, subscriber: BrokerSubscriber) -> None:
        """Call ``subscriber`` with the names of broker options whose effective value changed."""
        self._broker_subscribers.append(subscriber)

    def on_topic_change(self, subscriber: TopicSubscriber) -> None:
        """Call ``subscriber`` for each topic whose effective config changed, by itself or by its broker."""
        self._topic_subscribers.append(subscriber)

    def topic(self, name: str) -> TopicConfig:
        """A topic's effective config."""
        usable = {}
        warnings = set()
        for option_name, stored in self._image.topic_config(name).items():
            option = TOPIC_OPTIONS.get(option_name)
            text = raised(option_name, stored)
            try:
                if option is not None:
                    option.parse(text)
            except BadValueError as error:
                warnings.add(f"Topic {name} has a config that cannot be used and is passed over: {error}")
            else:
                usable[option_name] = text
                if text != stored:
                    warnings.add(f"Topic {name} has {option_name}={stored}: {text} is the least, and used")
        self._warn(name, warnings)
        return TopicConfig(self._config.topic_defaults(), usable)

    def _warn(self, topic: str, warnings: set[str]) -> None:
        """Log what was not logged when the topic was last looked at."""
        for each in sorted(warnings - self._warnings.get(topic, set())):
            logger.warning("%s", each)
        if warnings:
            self._warnings[topic] = warnings
        else:
            self._warnings.pop(topic, None)

    def describe_topic(self, name: str) -> list[ConfigEntry]:
        """Every option of a topic, for DescribeConfigs."""
        return topic_entries(self.topic(name), self._layers())

    def describe_group(self, name: str) -> list[ConfigEntry]:
        """Every option of a group, whether it exists or not."""
        return group_entries(self._image.group_configs.get(name, {}), self._layers())

    def describe_client_metrics(self, name: str) -> list[ConfigEntry]:
        """Every option of a subscription to clients' metrics, whether it exists or not."""
        return client_metrics_entries(self._image.client_metrics.get(name, {}))

    def describe_broker(self) -> list[ConfigEntry]:
        """Every option of this broker."""
        return broker_entries(self._layers())

    def describe_default_broker(self) -> list[ConfigEntry]:
        """The dynamic options of every broker."""
        return default_broker_entries(self._layers())

    def check_topic(self, entries: Mapping[str, str | None]) -> None:
        """Refuse a topic's complete new entries with INVALID_CONFIG if one or their sum cannot be used."""
        check_topic_overrides(entries, self._config.topic_defaults())

    def check_group(self, entries: Mapping[str, str]) -> None:
        """Refuse a group's complete new entries with INVALID_CONFIG if one or their sum cannot be used."""
        check_group(entries, self._config)

    async def check_broker(self, entries: Mapping[str, str], *, every_broker: bool) -> None:
        """Refuse complete new dynamic entries of this or of every broker with INVALID_REQUEST, like Kafka."""
        self._check_broker_names(entries, every_broker=every_broker)
        for name, text in entries.items():
            option = option_of(name)
            try:
                if option is not None:
                    option.parse(text)
            except BadValueError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        try:
            if every_broker:
                self._config.preview_dynamic(entries, self._this_broker())
            else:
                self._config.preview_dynamic(self._every_broker(), entries)
                self._check_open_listeners(entries)
                await self._prepare_stores(entries)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_broker_names(self, entries: Mapping[str, str], *, every_broker: bool) -> None:
        fixed = sorted(name for name in entries if not _is_dynamic(name))
        if fixed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            )
        general = sorted(name for name in entries if name in _TLS)
        if general:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener "
                f"prefix: [{', '.join(general)}]",
            )
        single = sorted(name for name in entries if every_broker and _is_per_broker(name))
        if single:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(single)}]",
            )

    def _check_open_listeners(self, entries: Mapping[str, str]) -> None:
        """Of a listener that is open, only the stores can change."""
        now = self._this_broker()
        for name in entries.keys() | now.keys():
            listener, option = listener_of(name), option_of(name)
            if listener is None or option is None or option.name in RECONFIGURABLE:
                continue
            if option.name in _TLS and entries.get(name) != now.get(name):
                raise ConfigError(
                    f"Configs cannot be updated dynamically for existing listener {listener}, restart broker "
                    f"or create a new listener for update: {name}"
                )

    async def _prepare_stores(self, entries: Mapping[str, str]) -> Callable[[], None]:
        if self.listener_stores is None or not any(map(listener_of, {*entries, *self._this_broker()})):
            return lambda: None
        return await self.listener_stores.prepare(
            lambda listener: self._config.preview_for_listener(listener, entries)
        )

    def check_topic_change(self, stored: Mapping[str, str], entries: Mapping[str, str]) -> None:
        """``check_topic`` without entries that cannot be used, but have been stored and stay as they are.

        Brokers of Apache Kafka in the same cluster, or of another release, wrote them and may use them.
        """
        self.check_topic(
            {
                name: text
                for name, text in entries.items()
                if text != stored.get(name) or self._is_usable_in_topic(name, text)
            }
        )

    def _is_usable_in_topic(self, name: str, text: str) -> bool:
        try:
            self.check_topic({name: text})
        except KafkaError:
            return False
        return True

    async def set_topic(self, name: str, entries: Mapping[str, str]) -> None:
        """Keep a topic's complete entries, which whoever makes them has checked."""
        await self._put(znodes.topic_config_path(name), entries)

    async def set_group(self, name: str, entries: Mapping[str, str]) -> None:
        """Check and keep a group's complete entries."""
        self.check_group(entries)
        await self._put(znodes.group_config_path(name), entries)

    async def set_client_metrics(self, name: str, entries: Mapping[str, str]) -> None:
        """Check and keep a subscription to clients' metrics; one without entries is gone."""
        check_subscription(name, entries)
        await self._put_or_drop(znodes.client_metrics_path(name), entries)

    async def change_broker(
        self,
        stored: Mapping[str, str],
        edit: Edit,
        *,
        every_broker: bool,
        validate_only: bool = False,
        write: Callable[[Mapping[str, str]], Awaitable[bool]] | None = None,
    ) -> bool:
        """Check and keep what ``edit`` makes of the dynamic entries of this or of every broker.

        ``stored`` is how they are kept now; ``edit`` has passwords as they were given. One that cannot be
        decrypted has no effect, and stays as it is kept unless it is changed. ``write`` keeps them where
        others write too; this gives what it gives: False if ``stored`` is not what is kept any more.
        """
        given = self._secrets.shown(stored)
        edited = edit({name: given.get(name, text) for name, text in stored.items()})
        unreadable = {
            name: text for name, text in stored.items() if name not in given and edited.get(name) == text
        }
        entries = {name: text for name, text in edited.items() if name not in unreadable}
        usable = {
            name: raised(name, text) if text == stored.get(name) else text for name, text in entries.items()
        }
        await self.check_broker(usable, every_broker=every_broker)
        if validate_only:
            return True
        use_stores = None if every_broker else await self._prepare_stores(usable)
        idle = sorted(name for name in entries if is_unsupported(name) and option_of(name) is None)
        if idle:
            logger.warning("These dynamic options are kept, but have no effect: %s", ", ".join(idle))
        kept = self._hidden(entries, stored) | unreadable
        if write is None:
            await self._put(znodes.broker_config_path(None if every_broker else self._config.node_id), kept)
        elif not await write(kept):
            return False
        if use_stores is not None:
            # Not left to the image: the same path again, which is no change of options, is to be read again.
            use_stores()
        return True

    def _hidden(self, entries: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        try:
            return self._secrets.hidden(entries, stored)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def set_user(self, name: str, entries: Mapping[str, str]) -> None:
        """Keep the complete entries of a user, which whoever makes them has checked."""
        await self._put_or_drop(znodes.user_config_path(name), entries)

    async def set_quotas(self, entity: QuotaEntity, entries: Mapping[str, str]) -> None:
        """Keep the complete entries of whomever quotas are for, which whoever makes them has checked."""
        await self._put_or_drop(znodes.quota_path(entity), entries)

    async def _put_or_drop(self, path: str, entries: Mapping[str, str]) -> None:
        try:
            if not entries and await drop_empty(self._store, path):
                return
        except NoNode:
            return
        await self._put(path, entries)

    async def _put(self, path: str, entries: Mapping[str, str]) -> None:
        try:
            await put(self._store, path, znodes.encode_config(entries))
        except TooLargeError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def close(self) -> None:
        """Stop following the image."""
        self._unsubscribe()

    def _layers(self) -> BrokerLayers:
        return BrokerLayers(self._config, self._this_broker(), self._every_broker())

    def _this_broker(self) -> dict[str, str]:
        return usable_dynamic(self._secrets.shown(self._image.broker_config(self._config.node_id)))

    def _every_broker(self) -> dict[str, str]:
        return usable_dynamic(self._secrets.shown(self._image.broker_config(None)))

    def _apply_broker(self) -> frozenset[str]:
        for which in (self._config.node_id, None):
            entries = self._image.broker_config(which)
            unusable = sorted(entries.keys() - usable_dynamic(self._secrets.shown(entries)))
            if unusable:
                names = ", ".join(unusable)
                logger.warning("Dynamic broker options that cannot be used are passed over: %s", names)
        try:
            return frozenset(self._config.apply_dynamic(self._every_broker(), self._this_broker()))
        except ConfigError as error:
            logger.error("Dynamic broker options contradict each other and are passed over: %s", error)
            return frozenset()

    def _on_change(self, delta: ImageDelta) -> Iterator[None]:
        """In steps: a default of the broker's concerns every topic."""
        topics = set(delta.topic_configs)
        if delta.broker_configs & {None, self._config.node_id}:
            before = self._config.topic_defaults()
            changed = self._apply_broker()
            for subscriber in self._broker_subscribers if changed else ():
                subscriber(changed)
            if self.listener_stores is not None:
                self.listener_stores.look_again()
            if before != self._config.topic_defaults():
                topics.update(self._image.topics)
        for gone in (topics | delta.topics) - self._image.topics.keys():
            self._warnings.pop(gone, None)
        for topic in sorted(topics & self._image.topics.keys()):
            # Others are served between two topics, and one may be gone by then.
            if topic in self._image.topics:
                effective = self.topic(topic)
                for notify in self._topic_subscribers:
                    notify(topic, effective)
                yield


def _is_dynamic(name: str) -> bool:
    option = option_of(name)
    if option is not None:
        return option.dynamic != "read-only"
    return name in DYNAMIC_UNSUPPORTED or not is_unsupported(name) or name.startswith("listener.name.")


def _is_per_broker(name: str) -> bool:
    option = option_of(name)
    return option is not None and option.dynamic == "per-broker"


def usable_dynamic(entries: Mapping[str, str]) -> dict[str, str]:
    """Dynamic entries without those that are read-only, have a bad value, ask for protection, or are about
    the TLS of all listeners."""
    usable = {}
    for name, stored in entries.items():
        option = option_of(name)
        text = raised(name, stored)
        try:
            if option is not None:
                option.parse(text)
        except BadValueError:
            continue
        if _is_dynamic(name) and name not in _TLS and not is_protection(name, text):
            usable[name] = text
    return usable
