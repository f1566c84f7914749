"""How one producer behaves: Kafka's options as typed values, with Kafka's defaults and rules between them.

Made from the option table by ``settings_from``; read by the accumulator, the sender and the transaction
manager.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.client.options import ClientConfig
from tidelog.client.producer.interceptors import ProducerInterceptor
from tidelog.client.producer.partitioner import KeyPartitioner, Partitioner, RoundRobinPartitioner
from tidelog.client.serialization import SerializeFn, serializer_for
from tidelog.errors import ConfigError
from tidelog.records.compression import Codec

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Everything about a producer but its network (``client._network.settings``)."""

    acks: int = ACKS_ALL
    retries: int = 2**31 - 1
    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 32 << 20
    max_block_ms: int = 60_000
    max_request_size: int = 1 << 20
    max_in_flight: int = 5
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    adaptive_partitioning: bool = True
    availability_timeout_ms: int = 0
    ignore_keys: bool = False
    partitioner: Partitioner | None = None
    """None: keys by hash, the rest sticky (KIP-794)."""
    key_serializer: SerializeFn | None = None
    value_serializer: SerializeFn | None = None
    interceptors: Sequence[ProducerInterceptor] = ()

    @property
    def keeps_order_by_muting(self) -> bool:
        """Whether a partition has one batch under way at a time: nothing overtakes, retries included."""
        return self.max_in_flight == 1


def settings_from(config: ClientConfig) -> ProducerSettings:
    """The settings that a producer's options mean; raises ``ConfigError`` where one is of no use."""
    codec = Codec[config.str("compression.type").upper()]
    return ProducerSettings(
        acks=int(config.str("acks")),
        retries=config.int("retries"),
        batch_size=config.int("batch.size"),
        linger_ms=config.int("linger.ms"),
        buffer_memory=config.int("buffer.memory"),
        max_block_ms=config.int("max.block.ms"),
        max_request_size=config.int("max.request.size"),
        max_in_flight=config.int("max.in.flight.requests.per.connection"),
        request_timeout_ms=config.int("request.timeout.ms"),
        delivery_timeout_ms=config.int("delivery.timeout.ms"),
        retry_backoff_ms=config.int("retry.backoff.ms"),
        retry_backoff_max_ms=config.int("retry.backoff.max.ms"),
        codec=codec,
        compression_level=_level(config, codec),
        enable_idempotence=config.bool("enable.idempotence"),
        transactional_id=config.optional_str("transactional.id"),
        transaction_timeout_ms=config.int("transaction.timeout.ms"),
        adaptive_partitioning=config.bool("partitioner.adaptive.partitioning.enable"),
        availability_timeout_ms=config.int("partitioner.availability.timeout.ms"),
        ignore_keys=config.bool("partitioner.ignore.keys"),
        partitioner=_partitioner(config.object("partitioner.class")),
        key_serializer=serializer_for(config.object("key.serializer"), "key.serializer"),
        value_serializer=serializer_for(config.object("value.serializer"), "value.serializer"),
        interceptors=tuple(_interceptor(each) for each in config.list("interceptor.classes")),
    )


def _level(config: ClientConfig, codec: Codec) -> int | None:
    """The level for ``codec`` where the user has set one; else what the compressor itself thinks best."""
    name = f"compression.{codec.name.lower()}.level"
    return config.int(name) if name in config.given and config.int(name) != -1 else None


def _partitioner(given: object) -> Partitioner | None:
    if isinstance(given, type):
        given = given()
    if isinstance(given, str):
        plain = given.rpartition(".")[2].removesuffix("Partitioner").replace("_", "").lower()
        if plain not in _PARTITIONERS:
            raise ConfigError(
                f"partitioner.class={given!r}: there is {', '.join(_PARTITIONERS)}; or pass an object"
            )
        given = _PARTITIONERS[plain]()
    if given is None:
        return None
    if isinstance(given, Partitioner):
        _check_arguments(given.partition)
        return given
    if callable(given):
        _check_arguments(given)
        return _FunctionPartitioner(given)
    raise ConfigError(
        f"partitioner.class takes a function of {_ARGUMENTS}, or an object with such a partition()"
    )


def _check_arguments(function: Callable[..., object]) -> None:
    """Refuse a function with other arguments now, and not at the first record."""
    try:
        inspect.signature(function).bind(*_ARGUMENTS.split(", "))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"partitioner.class takes a function of {_ARGUMENTS}, which {function!r} is not: {error}"
        ) from None


_ARGUMENTS = "topic, key, key_bytes, value, value_bytes, partition_count, available"


_PARTITIONERS: dict[str, Callable[[], Partitioner | None]] = {
    "default": lambda: None,
    "roundrobin": RoundRobinPartitioner,
    "key": KeyPartitioner,
}


class _FunctionPartitioner:
    """A plain function as a partitioner."""

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        return self._function(topic, key, key_bytes, value, value_bytes, partition_count, available)


def _interceptor(given: object) -> ProducerInterceptor:
    if isinstance(given, type):
        given = given()
    if not isinstance(given, ProducerInterceptor):
        raise ConfigError(f"interceptor.classes takes objects of ProducerInterceptor, not {given!r}")
    return given
