"""What a client has done, in numbers, under Kafka's names and groups.

Hot paths add to plain attributes or call ``Stat.record``, once per batch, request or answer; everything else,
names included, is worked out when somebody asks, so that it costs nothing when nobody does.

A *family* (:class:`Family`) says once which figures a kind of thing has (a client, one of its brokers, a
topic, a partition), in which group and with which tags; ``docs/reference/client-metrics.md`` is printed from
the families. A client's :class:`Metrics` is told where the things of each family are found, looks there
whenever it is read, and tells its reporters which figures have come and gone.

    -total                  since the client was made
    -rate, -avg, -max, …    of the last 30 to 60 seconds (``metrics.sample.window.ms`` and
                            ``metrics.num.samples``) where they are read as often as that, else since they
                            were last read; 0 where nothing has happened

A figure with tags is written ``request-total{node-id=node-1}``; ``client-id``, which all have, is left out.
Reading is for any thread; what is counted belongs to the client's loop.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

_MIN_WINDOW_S = 1.0
_BUCKETS = 48
_NOTHING = float("-inf")
_SECONDS_PER_HOUR = 3600.0

Tags = tuple[str, ...]
"""The values of a family's tags, in their order."""


class Stat:
    """Sizes or durations: how many, how much in all, and the largest since it was last looked at."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = _NOTHING

    def record(self, value: float) -> None:
        """One more of them."""
        self.count += 1
        self.total += value
        if value > self.longest:
            self.longest = value

    def mark(self) -> _Mark:
        """What it says now."""
        return _Mark(self.count, self.total, self.longest, None)


class LowStat(Stat):
    """As :class:`Stat`, of which the smallest is of interest: ``longest`` is that, with its sign turned."""

    __slots__ = ()

    def record(self, value: float) -> None:
        """One more of them."""
        self.count += 1
        self.total += value
        if -value > self.longest:
            self.longest = -value


class Latency(Stat):
    """As :class:`Stat`, with a histogram by powers of two."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        super().__init__()
        self.buckets = [0] * _BUCKETS

    def record(self, value: float) -> None:
        """One more of them."""
        self.count += 1
        self.total += value
        if value > self.longest:
            self.longest = value
        self.buckets[min(int(value * 1024).bit_length(), _BUCKETS - 1)] += 1

    def mark(self) -> _Mark:
        """What it says now."""
        return _Mark(self.count, self.total, self.longest, list(self.buckets))


def merged(stats: Iterable[Stat]) -> Stat:
    """Several of them as one, to be read."""
    found = Stat()
    for each in stats:
        found.count += each.count
        found.total += each.total
        found.longest = max(found.longest, each.longest)
    return found


class _Mark(NamedTuple):
    """What a :class:`Stat` said at some moment."""

    recorded: int
    total: float
    longest: float
    buckets: list[int] | None


_ZERO = _Mark(0, 0.0, _NOTHING, None)


class Kind(enum.Enum):
    """How a figure comes of what is counted."""

    TOTAL = "total"
    GAUGE = "gauge"
    RATE = "rate"
    PER_HOUR = "per hour"
    AVG = "avg"
    MAX = "max"
    MIN = "min"
    P99 = "p99"


class Figure(NamedTuple):
    """One figure of a family: its name, and how it is read from a thing of it."""

    name: str
    kind: Kind
    read: Callable[[Any], Any]
    """Finds a number, or the :class:`Stat` for averages and the like (for MIN a :class:`LowStat`)."""
    doc: str


def total(name: str, read: Callable[[Any], float], what: str) -> Figure:
    """``name-total``."""
    return Figure(f"{name}-total", Kind.TOTAL, read, f"{what}, in all")


def meter(name: str, read: Callable[[Any], float], what: str) -> tuple[Figure, Figure]:
    """``name-rate``, per second, and ``name-total``."""
    return Figure(f"{name}-rate", Kind.RATE, read, f"{what}, per second"), total(name, read, what)


def gauge(name: str, read: Callable[[Any], float], what: str) -> Figure:
    """A number that goes up and down, read when it is asked for."""
    return Figure(name, Kind.GAUGE, read, what)


_WORDS = {Kind.AVG: "on average", Kind.MAX: "at most", Kind.MIN: "at least", Kind.P99: "for 99 in 100"}


def spread(
    name: str, read: Callable[[Any], Stat], what: str, *kinds: Kind, suffix: bool = True
) -> tuple[Figure, ...]:
    """``name-avg`` and ``name-max``, or those of ``kinds``."""
    return tuple(
        Figure(f"{name}-{kind.value}" if suffix else name, kind, read, f"{what}, {_WORDS[kind]}")
        for kind in kinds or (Kind.AVG, Kind.MAX)
    )


class Family:
    """The figures of one kind of thing.

    ``group`` is Kafka's, ``{client}`` in it is the kind of client; ``tags`` are the names of its tags.
    """

    def __init__(self, group: str, figures: Iterable[Figure], tags: Tags = ()) -> None:
        self.group = group
        self.tags = tags
        self.figures = tuple(figures)
        windowed = [each for each in self.figures if each.kind not in (Kind.TOTAL, Kind.GAUGE)]
        self.reads = tuple(dict.fromkeys(each.read for each in windowed))
        """What has to be remembered at the beginning of a window."""
        self.place = {each.name: self.reads.index(each.read) for each in windowed}


class MetricName(str):
    """A figure's name as a text, ``name{tag=value}``, and in its parts as Kafka has them."""

    __slots__ = ("description", "group", "name", "tags")

    name: str
    group: str
    tags: Mapping[str, str]
    description: str

    def __new__(
        cls, name: str, group: str = "", tags: Mapping[str, str] | None = None, description: str = ""
    ) -> MetricName:
        tags = tags or {}
        shown = ",".join(f"{key}={value}" for key, value in tags.items() if key != "client-id")
        self = super().__new__(cls, f"{name}{{{shown}}}" if shown else name)
        self.name = name
        self.group = group
        self.tags = tags
        self.description = description
        return self


class Figures(dict[MetricName, float]):
    """All figures of a client at one moment: ``figures["request-total"]``, or by their parts."""

    if TYPE_CHECKING:

        def __getitem__(self, name: str) -> float: ...

    def of_group(self, group: str) -> dict[MetricName, float]:
        """Those of one of Kafka's groups (``producer-topic-metrics``)."""
        return {name: value for name, value in self.items() if name.group == group}


class ClientMetric:
    """One figure, as reporters get it: its name, and its value whenever they ask."""

    __slots__ = ("_figure", "_metrics", "_row", "name")

    def __init__(self, metrics: Metrics, row: _Row, figure: Figure, name: MetricName) -> None:
        self.name = name
        self._metrics = metrics
        self._row = row
        self._figure = figure

    def __repr__(self) -> str:
        return f"<metric {self.name} of {self.name.group}>"

    @property
    def kind(self) -> Kind:
        """Whether it only grows (``Kind.TOTAL``), and if not, what it is."""
        return self._figure.kind

    def value(self) -> float:
        """What it says now."""
        return self._metrics.value_of(self._row, self._figure)


class FiguresListener(Protocol):
    """Who is told which figures there are (``client.reporters``)."""

    def init(self, metrics: Sequence[ClientMetric]) -> None:
        """Those there are."""

    def metric_change(self, metric: ClientMetric) -> None:
        """One that is new."""

    def metric_removal(self, metric: ClientMetric) -> None:
        """One that is no longer kept."""


class _Row:
    """One thing with figures: where they are read, what they are called, what they said before."""

    __slots__ = ("family", "marks", "metrics", "source")

    def __init__(self, family: Family, source: Any, since: float) -> None:
        self.family = family
        self.source = source
        self.marks: list[tuple[float, tuple[Any, ...] | None]] = [(since, None)]
        """Moments and what was to be remembered of them; None: nothing had happened."""
        self.metrics: tuple[ClientMetric, ...] = ()

    def remember(self, now: float, most: int) -> list[Stat]:
        """Begin another window; the stats whose largest is to be forgotten once all have done so."""
        found = [read(self.source) for read in self.family.reads]
        marks = tuple(each.mark() if isinstance(each, Stat) else float(each) for each in found)
        self.marks.append((now, marks))
        del self.marks[: -most - 1]
        return [each for each in found if isinstance(each, Stat)]


class Metrics:
    """The figures of one client.

    ``client`` is how Kafka's groups begin: producer, consumer or admin-client.
    """

    def __init__(
        self,
        client: str = "client",
        client_id: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        window_s: float = 30.0,
        samples: int = 2,
    ) -> None:
        self.client = client
        self.started_ms = int(time.time() * 1000)
        self._client_id = client_id
        self._clock = clock
        self._window_s = window_s
        self._samples = samples
        self._lock = threading.RLock()
        self._sources: list[tuple[Family, Callable[[], Mapping[Tags, Any]]]] = []
        self._rows: dict[tuple[int, Tags], _Row] = {}
        self._reporters: Sequence[FiguresListener] = ()
        self._began = self._read_at = self._remembered_at = clock()

    def add(self, family: Family, rows: Callable[[], Mapping[Tags, Any]]) -> None:
        """Have the figures of ``family``; ``rows`` finds its things by their tags, whenever it is asked."""
        self._sources.append((family, rows))

    def add_one(self, family: Family, source: object) -> None:
        """Have the figures of a family without tags, of which there is one thing."""
        self.add(family, lambda: {(): source})

    @property
    def count(self) -> int:
        """How many figures there were when they were last read."""
        return sum(len(row.metrics) for row in list(self._rows.values()))

    def snapshot(self) -> Figures:
        """All figures now, by name."""
        return Figures((metric.name, value) for metric, value in self.measured())

    def measured(self) -> list[tuple[ClientMetric, float]]:
        """All figures now."""
        with self._lock:
            self.refresh()
            now = self._clock()
            found = [
                (metric, self._value(row, figure, now))
                for row in self._rows.values()
                for metric, figure in zip(row.metrics, row.family.figures, strict=True)
            ]
            self._remember(now)
            return found

    def value_of(self, row: _Row, figure: Figure) -> float:
        """One figure now."""
        with self._lock:
            now = self._clock()
            value = self._value(row, figure, now)
            self._remember(now)
            return value

    # -- reporters

    def report_to(self, reporters: Sequence[FiguresListener]) -> None:
        """Tell ``reporters`` of all figures there are, and from now on of those that come and go."""
        with self._lock:
            self.refresh()
            metrics = [metric for row in self._rows.values() for metric in row.metrics]
            for reporter in reporters:
                reporter.init(metrics)
            self._reporters = tuple(reporters)

    @property
    def has_reporters(self) -> bool:
        """Whether anybody wants to hear at once of figures that come and go."""
        return bool(self._reporters)

    def refresh(self) -> None:
        """Look which things there are now."""
        with self._lock:
            there: dict[tuple[int, Tags], tuple[Family, Any]] = {}
            for number, (family, rows) in enumerate(self._sources):
                there.update(((number, tags), (family, source)) for tags, source in rows().items())
            for key in [key for key in self._rows if key not in there]:
                self._removed(self._rows.pop(key))
            for key, (family, source) in there.items():
                row = self._rows.get(key)
                if row is not None and row.source is not source:
                    self._removed(row)
                    row = None
                if row is None:
                    row = self._rows[key] = _Row(family, source, self._read_at)
                    row.metrics = tuple(self._named(row, key[1]))
                    self._added(row)
            self._read_at = self._clock()

    def _named(self, row: _Row, values: Tags) -> Iterator[ClientMetric]:
        tags = {"client-id": self._client_id, **dict(zip(row.family.tags, values, strict=True))}
        group = row.family.group.format(client=self.client)
        for figure in row.family.figures:
            yield ClientMetric(self, row, figure, MetricName(figure.name, group, tags, figure.doc))

    def _added(self, row: _Row) -> None:
        for reporter in self._reporters:
            for metric in row.metrics:
                reporter.metric_change(metric)

    def _removed(self, row: _Row) -> None:
        for reporter in self._reporters:
            for metric in row.metrics:
                reporter.metric_removal(metric)

    # -- windows

    def _remember(self, now: float) -> None:
        if now - self._remembered_at < self._window_s:
            return
        self._remembered_at = now
        stats = [stat for row in self._rows.values() for stat in row.remember(now, self._samples)]
        for each in stats:
            each.longest = _NOTHING

    def _window(self, row: _Row, now: float) -> int:
        """At which mark of ``row`` its window begins: as long ago as asked for, no longer than need be."""
        marks = row.marks
        for number in range(len(marks) - 1, -1, -1):
            age = now - marks[number][0]
            if age < self._window_s * max(self._samples - 1, 1):
                continue
            newer = number + 1
            too_old = age > self._window_s * self._samples
            if too_old and newer < len(marks) and now - marks[newer][0] >= _MIN_WINDOW_S:
                return newer
            return number
        return 0

    def _value(self, row: _Row, figure: Figure, now: float) -> float:
        current = figure.read(row.source)
        if figure.kind is Kind.PER_HOUR:
            return float(current) / max((now - self._began) / _SECONDS_PER_HOUR, 1.0)
        if figure.kind in (Kind.TOTAL, Kind.GAUGE):
            return float(current)
        number = self._window(row, now)
        since, before = row.marks[number]
        place = row.family.place[figure.name]
        if figure.kind is Kind.RATE:
            elapsed = now - since
            grown = float(current) - (0.0 if before is None else before[place])
            return grown / elapsed if elapsed > 0 else 0.0
        stat = current.mark()
        begun = _ZERO if before is None else before[place]
        largest = max(
            (marks[place].longest for _, marks in row.marks[number + 1 :] if marks), default=_NOTHING
        )
        return _of_stat(figure.kind, begun, stat, max(largest, stat.longest))


def _of_stat(kind: Kind, begun: _Mark, now: _Mark, largest: float) -> float:
    count = now.recorded - begun.recorded
    if count <= 0 or largest == _NOTHING:
        return 0.0
    match kind:
        case Kind.AVG:
            return (now.total - begun.total) / count
        case Kind.MIN:
            return float(-largest)
        case Kind.P99 if now.buckets is not None:
            before = begun.buckets or [0] * _BUCKETS
            recent = [new - old for new, old in zip(now.buckets, before, strict=True)]
            return min(_quantile(recent, count, 0.99), largest)
    return float(largest)


def _quantile(buckets: list[int], count: int, share: float) -> float:
    """The upper edge of the bucket in which the quantile lies."""
    wanted = share * count
    seen = 0
    for number, inside in enumerate(buckets):
        seen += inside
        if seen >= wanted:
            return float(1 << number) / 1024
    return 0.0


def tagged(name: str, **tags: object) -> str:
    """``tagged("request-total", node_id="node-1")``: the name of one of several figures of a kind."""
    inner = ",".join(f"{key.replace('_', '-')}={value}" for key, value in tags.items())
    return f"{name}{{{inner}}}"


CLIENT = (
    Family(
        "app-info", [gauge("start-time-ms", lambda metrics: metrics.started_ms, "When the client was made")]
    ),
    Family(
        "kafka-metrics-count", [gauge("count", lambda metrics: metrics.count, "How many figures there are")]
    ),
)
"""What every client says of itself; read from its :class:`Metrics`."""
