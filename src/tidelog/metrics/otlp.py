"""OpenTelemetry's metrics in protobuf (OTLP v1): what clients push (KIP-714), and what a broker exports.

Owns the plain classes of OTLP's metrics model and their two directions, ``encode`` and ``decode``. The bytes
are a ``MetricsData`` message and, field for field, an ``ExportMetricsServiceRequest``. Exemplars, schema
addresses and metadata of metrics are neither written nor read; fields that are not known are skipped.

Decision: this is written by hand and not taken from ``opentelemetry-proto``. A receiver in the broker reads
what anyone may send: with protobuf's classes a message is read in one call that holds the event loop, and 2
bytes of a message can become an object of 100, without a bound. They would also cost the broker some 10 MB
and a dependency, for a format of two dozen fields that will not change. ``opentelemetry-proto`` is used in
tests, as the other opinion on every byte.

Invariant: ``decode(encode(found)) == found``. ``decode_in_steps`` does a bounded amount of work (a few
milliseconds at most) between two steps, and refuses more than ``max_elements`` metrics and points and parts
of more than ``LARGEST_PART`` bytes. Anything that cannot be read raises :class:`OtlpError`.

Called by ``broker/telemetry``, by ``metrics/otlp_export``, and by the clients' telemetry.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

AttributeValue: TypeAlias = (
    "str | bool | int | float | bytes | tuple[AttributeValue, ...] | dict[str, AttributeValue] | None"
)
"""What an attribute may be; an array is a tuple, a list of pairs a dict, a value left empty None."""

Attributes: TypeAlias = Mapping[str, AttributeValue]

LARGEST_PART: Final = 32 * 1024
"""Bytes that a resource, a scope or one point may have."""

DEFAULT_MAX_ELEMENTS: Final = 100_000
_DEEPEST_VALUE: Final = 8


class OtlpError(ValueError):
    """Bytes that are no metrics, or more than is taken."""


class TooManyElementsError(OtlpError):
    """More metrics and points than are taken at once."""


class Temporality(enum.IntEnum):
    """Since when a sum or a histogram counts."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


@dataclass(slots=True)
class NumberPoint:
    """A value of a gauge or a sum; ``None`` where none was recorded."""

    value: int | float | None
    attributes: Attributes = field(default_factory=dict)
    time_ns: int = 0
    start_ns: int = 0


@dataclass(slots=True)
class HistogramPoint:
    """Counts between bounds; there is one count more than bounds, or none of both."""

    count: int
    sum: float | None = None
    bucket_counts: Sequence[int] = ()
    bounds: Sequence[float] = ()
    min: float | None = None
    max: float | None = None
    attributes: Attributes = field(default_factory=dict)
    time_ns: int = 0
    start_ns: int = 0


@dataclass(slots=True)
class Buckets:
    """Counts of an exponential histogram, from the bucket number ``offset`` on."""

    offset: int = 0
    counts: Sequence[int] = ()


@dataclass(slots=True)
class ExponentialPoint:
    """Counts in buckets whose bounds grow by a factor of 2 ** (2 ** -scale)."""

    count: int
    scale: int
    sum: float | None = None
    zero_count: int = 0
    positive: Buckets = field(default_factory=Buckets)
    negative: Buckets = field(default_factory=Buckets)
    min: float | None = None
    max: float | None = None
    zero_threshold: float = 0.0
    attributes: Attributes = field(default_factory=dict)
    time_ns: int = 0
    start_ns: int = 0


@dataclass(slots=True)
class SummaryPoint:
    """Quantiles (0 to 1) with their values."""

    count: int
    sum: float
    quantiles: Sequence[tuple[float, float]] = ()
    attributes: Attributes = field(default_factory=dict)
    time_ns: int = 0
    start_ns: int = 0


@dataclass(slots=True)
class Gauge:
    """Something as it is now."""

    points: list[NumberPoint]


@dataclass(slots=True)
class Sum:
    """Something that adds up."""

    points: list[NumberPoint]
    temporality: Temporality = Temporality.CUMULATIVE
    is_monotonic: bool = True


@dataclass(slots=True)
class Histogram:
    """How values are distributed, over given bounds."""

    points: list[HistogramPoint]
    temporality: Temporality = Temporality.CUMULATIVE


@dataclass(slots=True)
class ExponentialHistogram:
    """How values are distributed, over bounds that grow."""

    points: list[ExponentialPoint]
    temporality: Temporality = Temporality.CUMULATIVE


@dataclass(slots=True)
class Summary:
    """Quantiles that somebody else has worked out."""

    points: list[SummaryPoint]


Data: TypeAlias = Gauge | Sum | Histogram | ExponentialHistogram | Summary


@dataclass(slots=True)
class Metric:
    """A named figure; ``data`` is None where it is of a kind that is not known here."""

    name: str
    data: Data | None
    description: str = ""
    unit: str = ""


@dataclass(slots=True)
class ScopeMetrics:
    """The figures of one library."""

    metrics: list[Metric]
    name: str = ""
    version: str = ""


@dataclass(slots=True)
class ResourceMetrics:
    """The figures of one process, or of one client of it."""

    scopes: list[ScopeMetrics]
    attributes: Attributes = field(default_factory=dict)


# Protobuf's tags: a field's number with the form of its value.
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def _tag(number: int, form: int) -> int:
    return number << 3 | form


_DOUBLE = struct.Struct("<d")
_UNSIGNED = struct.Struct("<Q")
_SIGNED = struct.Struct("<q")
_MASK64: Final = 0xFFFFFFFFFFFFFFFF

# -- writing ----------------------------------------------------------------------------------------------


def encode(found: Iterable[ResourceMetrics]) -> bytes:
    """The message that holds these; raises ``ValueError`` for whole numbers of more than 64 bits."""
    out = bytearray()
    for resource in found:
        _message(out, 1, _resource_metrics(resource))
    return bytes(out)


def encoded_metric(metric: Metric) -> bytes:
    """One metric by itself, for ``assembled``, or to know how many bytes it takes."""
    return bytes(_metric(metric))


def assembled(metrics: Iterable[bytes], scope: ScopeMetrics, attributes: Attributes) -> bytes:
    """The message of one resource and one scope, of which the metrics have been encoded already."""
    out, content = bytearray(), bytearray()
    _resource(content, attributes)
    _message(content, 2, _scope_metrics(scope, metrics))
    _message(out, 1, content)
    return bytes(out)


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _message(out: bytearray, number: int, content: bytes | bytearray) -> None:
    _varint(out, _tag(number, _LENGTH))
    _varint(out, len(content))
    out += content


def _text(out: bytearray, number: int, text: str) -> None:
    if text:
        _message(out, number, text.encode("utf-8", "replace"))


def _number(out: bytearray, number: int, value: int) -> None:
    if value:
        _varint(out, _tag(number, _VARINT))
        _varint(out, value & _MASK64)


def _fixed(out: bytearray, number: int, value: int) -> None:
    if value:
        _varint(out, _tag(number, _FIXED64))
        out += _packed(_UNSIGNED, value)


def _double(out: bytearray, number: int, value: float | None) -> None:
    if value is not None:
        _varint(out, _tag(number, _FIXED64))
        out += _DOUBLE.pack(value)


def _packed(form: struct.Struct, value: int) -> bytes:
    try:
        return form.pack(value)
    except struct.error as error:
        raise ValueError(f"{value} does not fit into 64 bits, as OTLP would have it") from error


def _value(value: AttributeValue) -> bytearray:
    out = bytearray()
    if value is None:
        return out
    if isinstance(value, str):
        _message(out, 1, value.encode("utf-8", "replace"))
    elif isinstance(value, bool):
        out += bytes((_tag(2, _VARINT), value))
    elif isinstance(value, int):
        _packed(_SIGNED, value)
        out.append(_tag(3, _VARINT))
        _varint(out, value & _MASK64)
    elif isinstance(value, float):
        _double(out, 4, value)
    elif isinstance(value, tuple):
        inner = bytearray()
        for each in value:
            _message(inner, 1, _value(each))
        _message(out, 5, inner)
    elif isinstance(value, dict):
        inner = bytearray()
        _attributes(inner, 1, value)
        _message(out, 6, inner)
    else:
        _message(out, 7, value)
    return out


def _attributes(out: bytearray, number: int, attributes: Attributes) -> None:
    for key, value in attributes.items():
        pair = bytearray()
        _text(pair, 1, key)
        _message(pair, 2, _value(value))
        _message(out, number, pair)


def _times(out: bytearray, start_ns: int, time_ns: int) -> None:
    _fixed(out, 2, start_ns)
    _fixed(out, 3, time_ns)


def _number_point(point: NumberPoint) -> bytearray:
    out = bytearray()
    _times(out, point.start_ns, point.time_ns)
    value = point.value
    if value is None:
        _number(out, 8, 1)
    elif isinstance(value, int):
        out.append(_tag(6, _FIXED64))
        out += _packed(_SIGNED, value)
    else:
        _double(out, 4, value)
    _attributes(out, 7, point.attributes)
    return out


def _histogram_point(point: HistogramPoint) -> bytearray:
    out = bytearray()
    _times(out, point.start_ns, point.time_ns)
    _fixed(out, 4, point.count)
    _double(out, 5, point.sum)
    if point.bucket_counts:
        _message(out, 6, b"".join(_packed(_UNSIGNED, count) for count in point.bucket_counts))
    if point.bounds:
        _message(out, 7, b"".join(map(_DOUBLE.pack, point.bounds)))
    _attributes(out, 9, point.attributes)
    _double(out, 11, point.min)
    _double(out, 12, point.max)
    return out


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _buckets(buckets: Buckets) -> bytearray:
    out = bytearray()
    _number(out, 1, _zigzag(buckets.offset))
    if buckets.counts:
        inner = bytearray()
        for count in buckets.counts:
            _varint(inner, count)
        _message(out, 2, inner)
    return out


def _exponential_point(point: ExponentialPoint) -> bytearray:
    out = bytearray()
    _attributes(out, 1, point.attributes)
    _times(out, point.start_ns, point.time_ns)
    _fixed(out, 4, point.count)
    _double(out, 5, point.sum)
    _number(out, 6, _zigzag(point.scale))
    _fixed(out, 7, point.zero_count)
    _message(out, 8, _buckets(point.positive))
    _message(out, 9, _buckets(point.negative))
    _double(out, 12, point.min)
    _double(out, 13, point.max)
    _double(out, 14, point.zero_threshold)
    return out


def _summary_point(point: SummaryPoint) -> bytearray:
    out = bytearray()
    _times(out, point.start_ns, point.time_ns)
    _fixed(out, 4, point.count)
    _double(out, 5, point.sum)
    for quantile, value in point.quantiles:
        inner = bytearray()
        _double(inner, 1, quantile)
        _double(inner, 2, value)
        _message(out, 6, inner)
    _attributes(out, 7, point.attributes)
    return out


def _metric(metric: Metric) -> bytearray:
    out = bytearray()
    _text(out, 1, metric.name)
    _text(out, 2, metric.description)
    _text(out, 3, metric.unit)
    inner = bytearray()
    match metric.data:
        case None:
            return out
        case Gauge(points):
            number = 5
            for point in points:
                _message(inner, 1, _number_point(point))
        case Sum(points, temporality, is_monotonic):
            number = 7
            for point in points:
                _message(inner, 1, _number_point(point))
            _number(inner, 2, temporality)
            _number(inner, 3, is_monotonic)
        case Histogram(histogram_points, temporality):
            number = 9
            for histogram_point in histogram_points:
                _message(inner, 1, _histogram_point(histogram_point))
            _number(inner, 2, temporality)
        case ExponentialHistogram(exponential_points, temporality):
            number = 10
            for exponential_point in exponential_points:
                _message(inner, 1, _exponential_point(exponential_point))
            _number(inner, 2, temporality)
        case Summary(summary_points):
            number = 11
            for summary_point in summary_points:
                _message(inner, 1, _summary_point(summary_point))
    _message(out, number, inner)
    return out


def _resource_metrics(found: ResourceMetrics) -> bytearray:
    out = bytearray()
    _resource(out, found.attributes)
    for scope in found.scopes:
        _message(out, 2, _scope_metrics(scope, map(_metric, scope.metrics)))
    return out


def _resource(out: bytearray, attributes: Attributes) -> None:
    content = bytearray()
    _attributes(content, 1, attributes)
    _message(out, 1, content)


def _scope_metrics(scope: ScopeMetrics, metrics: Iterable[bytes | bytearray]) -> bytearray:
    out, who = bytearray(), bytearray()
    _text(who, 1, scope.name)
    _text(who, 2, scope.version)
    if who:
        _message(out, 1, who)
    for metric in metrics:
        _message(out, 2, metric)
    return out


# -- reading ----------------------------------------------------------------------------------------------

Steps: TypeAlias = Generator[None, None, list[ResourceMetrics]]


def decode(data: bytes, *, max_elements: int = DEFAULT_MAX_ELEMENTS) -> list[ResourceMetrics]:
    """What ``data`` holds, read in one go."""
    steps = decode_in_steps(data, max_elements=max_elements)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[ResourceMetrics] = end.value
            return found


def decode_in_steps(data: bytes, *, max_elements: int = DEFAULT_MAX_ELEMENTS) -> Steps:
    """The same as a generator that stops after every element and returns what it has found."""
    return (yield from _Decoder(data, max_elements).read())


_Point = TypeVar("_Point")
_Field: TypeAlias = tuple[int, int, int]
"""A field's tag, and where its value is; or, of a varint, the value."""


class _Decoder:
    def __init__(self, data: bytes, max_elements: int) -> None:
        self._data = data
        self._left = self._max_elements = max_elements

    def read(self) -> Steps:
        found: list[ResourceMetrics] = []
        for tag, start, end in self._elements(0, len(self._data)):
            if tag == _tag(1, _LENGTH):
                found.append((yield from self._resource_metrics(start, end)))
            yield
        return found

    # Messages that hold others: each of their fields is an element.

    def _elements(self, start: int, end: int) -> Iterator[_Field]:
        for each in self._fields(start, end):
            self._left -= 1
            if self._left < 0:
                raise TooManyElementsError(f"there are more than {self._max_elements} metrics and points")
            yield each

    def _resource_metrics(self, start: int, end: int) -> Generator[None, None, ResourceMetrics]:
        found = ResourceMetrics([], {})
        for tag, first, last in self._elements(start, end):
            if tag == _tag(1, _LENGTH):
                found.attributes = self._attributes_in(first, last, _tag(1, _LENGTH))
            elif tag == _tag(2, _LENGTH):
                found.scopes.append((yield from self._scope_metrics(first, last)))
            yield
        return found

    def _scope_metrics(self, start: int, end: int) -> Generator[None, None, ScopeMetrics]:
        found = ScopeMetrics([])
        for tag, first, last in self._elements(start, end):
            if tag == _tag(1, _LENGTH):
                for inner, text_first, text_last in self._part(first, last):
                    if inner == _tag(1, _LENGTH):
                        found.name = self._text(text_first, text_last)
                    elif inner == _tag(2, _LENGTH):
                        found.version = self._text(text_first, text_last)
            elif tag == _tag(2, _LENGTH):
                found.metrics.append((yield from self._metric(first, last)))
            yield
        return found

    def _metric(self, start: int, end: int) -> Generator[None, None, Metric]:
        found = Metric("", None)
        for tag, first, last in self._elements(start, end):
            match tag:
                case 10:  # 1, a text
                    found.name = self._text(first, last)
                case 18:
                    found.description = self._text(first, last)
                case 26:
                    found.unit = self._text(first, last)
                case 42:  # 5, a message
                    numbers, _, _ = yield from self._points(first, last, self._number_point)
                    found.data = Gauge(numbers)
                case 58:
                    numbers, temporality, monotonic = yield from self._points(first, last, self._number_point)
                    found.data = Sum(numbers, temporality, monotonic)
                case 74:
                    counts, temporality, _ = yield from self._points(first, last, self._histogram_point)
                    found.data = Histogram(counts, temporality)
                case 82:
                    exponents, temporality, _ = yield from self._points(first, last, self._exponential_point)
                    found.data = ExponentialHistogram(exponents, temporality)
                case 90:
                    summaries, _, _ = yield from self._points(first, last, self._summary_point)
                    found.data = Summary(summaries)
            yield
        return found

    def _points(
        self, start: int, end: int, read: Callable[[int, int], _Point]
    ) -> Generator[None, None, tuple[list[_Point], Temporality, bool]]:
        points: list[_Point] = []
        temporality, monotonic = Temporality.UNSPECIFIED, False
        for tag, first, last in self._elements(start, end):
            if tag == _tag(1, _LENGTH):
                points.append(read(first, last))
            elif tag == _tag(2, _VARINT):
                temporality = Temporality(first) if first <= 2 else Temporality.UNSPECIFIED
            elif tag == _tag(3, _VARINT):
                monotonic = bool(first)
            yield
        return points, temporality, monotonic

    # Parts: read in one go, and therefore not larger than LARGEST_PART.

    def _part(self, start: int, end: int) -> Iterator[_Field]:
        if end - start > LARGEST_PART:
            raise OtlpError(f"a part has {end - start} bytes, more than the {LARGEST_PART} allowed")
        return self._fields(start, end)

    def _number_point(self, start: int, end: int) -> NumberPoint:
        found = NumberPoint(None)
        attributes: dict[str, AttributeValue] = {}
        missing = False
        for tag, first, last in self._part(start, end):
            match tag:
                case 58:
                    self._pair(attributes, first, last)
                case 17:  # 2, of 64 bits
                    found.start_ns = self._fixed(first)
                case 25:
                    found.time_ns = self._fixed(first)
                case 33:
                    found.value = self._double(first)
                case 49:
                    found.value = _SIGNED.unpack_from(self._data, first)[0]
                case 64:  # 8, a varint
                    missing = bool(first & 1)
        if missing:
            found.value = None
        found.attributes = attributes
        return found

    def _histogram_point(self, start: int, end: int) -> HistogramPoint:
        found = HistogramPoint(0)
        attributes: dict[str, AttributeValue] = {}
        counts: list[int] = []
        bounds: list[float] = []
        for tag, first, last in self._part(start, end):
            match tag:
                case 74:
                    self._pair(attributes, first, last)
                case 17:
                    found.start_ns = self._fixed(first)
                case 25:
                    found.time_ns = self._fixed(first)
                case 33:
                    found.count = self._fixed(first)
                case 41:
                    found.sum = self._double(first)
                case 50:  # packed
                    counts += struct.unpack(f"<{self._eighths(first, last)}Q", self._data[first:last])
                case 49:  # one by one
                    counts.append(self._fixed(first))
                case 58:
                    bounds += struct.unpack(f"<{self._eighths(first, last)}d", self._data[first:last])
                case 57:
                    bounds.append(self._double(first))
                case 89:
                    found.min = self._double(first)
                case 97:
                    found.max = self._double(first)
        found.bucket_counts, found.bounds, found.attributes = counts, bounds, attributes
        return found

    def _exponential_point(self, start: int, end: int) -> ExponentialPoint:
        found = ExponentialPoint(0, 0)
        attributes: dict[str, AttributeValue] = {}
        for tag, first, last in self._part(start, end):
            match tag:
                case 10:
                    self._pair(attributes, first, last)
                case 17:
                    found.start_ns = self._fixed(first)
                case 25:
                    found.time_ns = self._fixed(first)
                case 33:
                    found.count = self._fixed(first)
                case 41:
                    found.sum = self._double(first)
                case 48:
                    found.scale = _unzigzag(first)
                case 57:
                    found.zero_count = self._fixed(first)
                case 66:
                    found.positive = self._buckets(first, last)
                case 74:
                    found.negative = self._buckets(first, last)
                case 97:
                    found.min = self._double(first)
                case 105:
                    found.max = self._double(first)
                case 113:
                    found.zero_threshold = self._double(first)
        found.attributes = attributes
        return found

    def _buckets(self, start: int, end: int) -> Buckets:
        counts: list[int] = []
        found = Buckets(0, counts)
        for tag, first, last in self._fields(start, end):
            match tag:
                case 8:
                    found.offset = _unzigzag(first)
                case 16:
                    counts.append(first)
                case 18:
                    while first < last:
                        count, first = self._varint(first, last)
                        counts.append(count)
        return found

    def _summary_point(self, start: int, end: int) -> SummaryPoint:
        quantiles: list[tuple[float, float]] = []
        found = SummaryPoint(0, 0.0, quantiles)
        attributes: dict[str, AttributeValue] = {}
        for tag, first, last in self._part(start, end):
            match tag:
                case 58:
                    self._pair(attributes, first, last)
                case 17:
                    found.start_ns = self._fixed(first)
                case 25:
                    found.time_ns = self._fixed(first)
                case 33:
                    found.count = self._fixed(first)
                case 41:
                    found.sum = self._double(first)
                case 50:
                    quantile = value = 0.0
                    for inner, at, _ in self._fields(first, last):
                        if inner == _tag(1, _FIXED64):
                            quantile = self._double(at)
                        elif inner == _tag(2, _FIXED64):
                            value = self._double(at)
                    quantiles.append((quantile, value))
        found.attributes = attributes
        return found

    def _attributes_in(self, start: int, end: int, wanted: int) -> dict[str, AttributeValue]:
        found: dict[str, AttributeValue] = {}
        for tag, first, last in self._part(start, end):
            if tag == wanted:
                self._pair(found, first, last)
        return found

    def _pair(self, into: dict[str, AttributeValue], start: int, end: int, depth: int = 0) -> None:
        key, value = "", None
        for tag, first, last in self._fields(start, end):
            if tag == _tag(1, _LENGTH):
                key = self._text(first, last)
            elif tag == _tag(2, _LENGTH):
                value = self._value(first, last, depth)
        into[key] = value

    def _value(self, start: int, end: int, depth: int) -> AttributeValue:
        if depth > _DEEPEST_VALUE:
            raise OtlpError(f"an attribute is nested more than {_DEEPEST_VALUE} deep")
        found: AttributeValue = None
        for tag, first, last in self._fields(start, end):
            match tag:
                case 10:
                    found = self._text(first, last)
                case 16:
                    found = bool(first)
                case 24:
                    found = first - (1 << 64) if first >> 63 else first
                case 33:
                    found = self._double(first)
                case 42:
                    found = tuple(
                        self._value(at, to, depth + 1)
                        for inner, at, to in self._fields(first, last)
                        if inner == _tag(1, _LENGTH)
                    )
                case 50:
                    pairs: dict[str, AttributeValue] = {}
                    for inner, at, to in self._fields(first, last):
                        if inner == _tag(1, _LENGTH):
                            self._pair(pairs, at, to, depth + 1)
                    found = pairs
                case 58:
                    found = self._data[first:last]
        return found

    # Single values

    def _fields(self, position: int, end: int) -> Iterator[_Field]:
        """The fields of the message from here to ``end``, none of which reaches beyond it."""
        data = self._data
        while position < end:
            tag = data[position]
            position += 1
            if tag > 0x7F:
                tag, position = self._varint(position - 1, end)
            if tag < 8 or tag > 0xFFFFFFFF:
                raise OtlpError(f"no field has the tag {tag}")
            form = tag & 7
            if form == _LENGTH:
                length, position = self._varint(position, end)
                start, position = position, position + length
                if position > end:
                    raise OtlpError(f"{length} bytes are announced, and {end - start} are left")
                yield tag, start, position
            elif form == _VARINT:
                value, position = self._varint(position, end)
                yield tag, value, position
            elif form in (_FIXED64, _FIXED32):
                start, position = position, position + (8 if form == _FIXED64 else 4)
                if position > end:
                    raise OtlpError("a number is cut short")
                yield tag, start, position
            else:
                raise OtlpError(f"a field is of form {form}, which is not in use")

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        data = self._data
        value = shift = 0
        while position < end:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _MASK64, position
            shift += 7
            if shift > 63:
                raise OtlpError("a number has more than ten bytes")
        raise OtlpError("a number is cut short")

    def _fixed(self, at: int) -> int:
        value: int = _UNSIGNED.unpack_from(self._data, at)[0]
        return value

    def _double(self, at: int) -> float:
        value: float = _DOUBLE.unpack_from(self._data, at)[0]
        return value

    def _text(self, start: int, end: int) -> str:
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError as error:
            raise OtlpError(f"a text is not UTF-8: {error}") from error

    def _eighths(self, start: int, end: int) -> int:
        if (end - start) % 8:
            raise OtlpError(f"{end - start} bytes are announced for numbers of 8 bytes each")
        return (end - start) // 8


def _unzigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)
