"""The broker options that the cleaner honours, typed and frozen. Part of ``directories/log_dirs_options``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from msgspec import Struct

# What Kafka calls unlimited: the largest double there is, and anything near it.
_UNLIMITED_BYTES_PER_SECOND: Final = 1e15


class CleanerOptions(Struct, frozen=True):
    """How compaction is done; the defaults are Kafka's."""

    enable: bool = True
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    io_buffer_bytes: int = 512 * 1024
    load_factor: float = 0.9
    max_bytes_per_second: float | None = None
    backoff_ms: int = 15_000

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> CleanerOptions:
        """The options among ``options``, which have Kafka's names; other names are passed over."""
        found = {_NAMES[name]: value for name, value in options.items() if name in _NAMES}
        values = cast("dict[str, int]", {name: value for name, value in found.items() if value is not None})
        if values.get("max_bytes_per_second", 0) >= _UNLIMITED_BYTES_PER_SECOND:
            del values["max_bytes_per_second"]
        return cls(**values)  # type: ignore[arg-type]


_NAMES: Final[dict[str, str]] = {
    "log.cleaner.enable": "enable",
    "log.cleaner.dedupe.buffer.size": "dedupe_buffer_bytes",
    "log.cleaner.io.buffer.size": "io_buffer_bytes",
    "log.cleaner.io.buffer.load.factor": "load_factor",
    "log.cleaner.io.max.bytes.per.second": "max_bytes_per_second",
    "log.cleaner.backoff.ms": "backoff_ms",
}
