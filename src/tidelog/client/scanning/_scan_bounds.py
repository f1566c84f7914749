"""Where a scan begins and ends: offsets by partition, found once at its first read.

Both follow ``auto.offset.reset=none``: an offset that the log does not have is an error. Called by
``scan_source``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from tidelog.client._network.cluster import Cluster
from tidelog.client._offsets import list_offsets
from tidelog.client.resources import IsolationLevel, OffsetSpec
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, TopicPartition

Place = int | str | datetime
"""An offset, "earliest", "latest", or the time of a record."""
Bound = Place | Mapping[int, Place]
"""A place in all partitions, or places by partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = ("earliest", "latest")


def check_bound(name: str, bound: object) -> None:
    """Raise ``ConfigError`` unless this is a bound."""
    if isinstance(bound, Mapping):
        for partition, place in bound.items():
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                raise ConfigError(f"{name}: a partition is a number from 0 on, got {partition!r}")
            _check_place(f"{name} of partition {partition}", place)
    else:
        _check_place(name, bound)


def check_batch_size(batch_size: object) -> None:
    """Raise ``ConfigError`` unless this is the size of a record batch."""
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ConfigError(f"batch_size is a number of rows from 1 on, got {batch_size!r}")


def _check_place(name: str, place: object) -> None:
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise ConfigError(f"{name}={place.isoformat()} has no time zone: pass an aware datetime")
        if _milliseconds(place) < 0:
            raise ConfigError(f"{name}={place.isoformat()} is before 1970, where no record can be found")
    elif isinstance(place, int) and not isinstance(place, bool):
        if place < 0:
            raise ConfigError(f"{name}={place} is not a valid offset: offsets begin at 0")
    elif place not in _NAMES:
        raise ConfigError(f"{name} is 'earliest', 'latest', an offset or an aware datetime, got {place!r}")


def _milliseconds(time: datetime) -> int:
    return -((_EPOCH - time) // timedelta(milliseconds=1))


async def find_bounds(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    start: Bound,
    end: Bound,
    isolation: IsolationLevel,
) -> dict[int, tuple[int, int]]:
    """The first offset to read of each partition, and the one behind the last."""
    numbers = list(partitions)
    for name, bound in (("start", start), ("end", end)):
        if isinstance(bound, Mapping) and (unread := sorted(set(bound) - set(numbers))):
            raise ConfigError(f"{name} names partition {unread[0]}, which is not one of those scanned")

    async def offsets(wanted: dict[int, int]) -> dict[int, int]:
        specs = {TopicPartition(topic, number): spec for number, spec in wanted.items()}
        found = await list_offsets(cluster, specs, isolation_level=isolation) if specs else {}
        for result in found.values():
            result.raise_for_error()
        return {partition.partition: result.offset for partition, result in found.items()}

    # The starts first: a record that is written in between is then in the snapshot, and not before its start.
    earliest = await offsets(dict.fromkeys(numbers, int(OffsetSpec.EARLIEST)))
    times = {
        name: await offsets(
            {
                number: _milliseconds(place)
                for number in numbers
                if isinstance(place := _place(bound, number, default), datetime)
            }
        )
        for name, bound, default in (("start", start, "earliest"), ("end", end, "latest"))
    }
    latest = await offsets(dict.fromkeys(numbers, int(OffsetSpec.LATEST)))

    def resolve(name: str, place: Place, number: int) -> int:
        if place == "earliest":
            return earliest[number]
        if isinstance(place, datetime):
            found = times[name][number]
            return latest[number] if found == NO_OFFSET else min(found, latest[number])
        if place == "latest":
            return latest[number]
        assert isinstance(place, int)
        if not earliest[number] <= place <= latest[number]:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{name}={place} is not an offset of partition {topic}-{number}, which has those from "
                f"{earliest[number]} up to {latest[number]}",
            )
        return place

    bounds = {}
    for number in numbers:
        first = resolve("start", _place(start, number, "earliest"), number)
        after = resolve("end", _place(end, number, "latest"), number)
        bounds[number] = (first, max(first, after))
    return bounds


def _place(bound: Bound, partition: int, default: str) -> Place:
    return bound.get(partition, default) if isinstance(bound, Mapping) else bound
