"""What fetching needs of a consumer's options, taken out once."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.options import ClientConfig
from tidelog.client.resources import IsolationLevel
from tidelog.client.serialization import DeserializeFn, deserializer_for


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Options of the fetcher, with Kafka's defaults."""

    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    max_wait_ms: int = 500
    max_poll_records: int = 500
    check_crcs: bool = True
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    metadata_max_age_ms: int = 300_000
    key_deserializer: DeserializeFn | None = None
    value_deserializer: DeserializeFn | None = None

    @property
    def read_committed(self) -> bool:
        return self.isolation_level is IsolationLevel.READ_COMMITTED


def fetch_config(config: ClientConfig) -> FetchConfig:
    """The part of a consumer's options that fetching needs."""
    return FetchConfig(
        min_bytes=config.int("fetch.min.bytes"),
        max_bytes=config.int("fetch.max.bytes"),
        max_partition_bytes=config.int("max.partition.fetch.bytes"),
        max_wait_ms=config.int("fetch.max.wait.ms"),
        max_poll_records=config.int("max.poll.records"),
        check_crcs=config.bool("check.crcs"),
        isolation_level=IsolationLevel[config.str("isolation.level").upper()],
        client_rack=config.str("client.rack"),
        request_timeout_ms=config.int("request.timeout.ms"),
        retry_backoff_ms=config.int("retry.backoff.ms"),
        retry_backoff_max_ms=config.int("retry.backoff.max.ms"),
        metadata_max_age_ms=config.int("metadata.max.age.ms"),
        key_deserializer=deserializer_for(config.object("key.deserializer"), "key.deserializer"),
        value_deserializer=deserializer_for(config.object("value.deserializer"), "value.deserializer"),
    )
