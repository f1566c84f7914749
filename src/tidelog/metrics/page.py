"""The text that a scrape gets: Prometheus' format 0.0.4, or OpenMetrics 1.0.

Text comes in pieces, so that whoever sends it can do something else in between; a family's series follow one
another without a gap, as both formats want it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from tidelog.metrics.metric import Metric

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SERIES_PER_PIECE = 100
_LONGEST_VALUE = 512
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[str, float]
"""Labels, as ``labels`` writes them, and a value."""


def escaped(value: str) -> str:
    """A label's value as it may stand between quotes; overlong ones are cut, and stay apart."""
    if len(value) > _LONGEST_VALUE:
        # Two that begin alike would be one series, twice, for which a scrape is refused.
        mark = hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=8).hexdigest()
        value = f"{value[: _LONGEST_VALUE - len(mark) - 1]}~{mark}"
    if not value.isascii():
        # A client may send what is no text; it must not make the whole page unreadable.
        value = value.encode("utf-8", "replace").decode()
    return value.translate(_ESCAPED) if '"' in value or "\\" in value or "\n" in value else value


def labels(**values: object) -> str:
    """Labels as they stand behind a name; a trailing underscore is for names that Python keeps for itself."""
    return (
        "{" + ",".join(f'{name.rstrip("_")}="{escaped(str(value))}"' for name, value in values.items()) + "}"
    )


def number(value: float) -> str:
    """A value as the formats write it."""
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class Page:
    """One way to write families."""

    def __init__(self, *, newer_names: bool = False, openmetrics: bool = False) -> None:
        self.content_type = OPENMETRICS if openmetrics else PROMETHEUS
        self._newer_names = newer_names
        self._openmetrics = openmetrics

    @property
    def end(self) -> str:
        """What ends the page."""
        return "# EOF\n" if self._openmetrics else ""

    def name_of(self, metric: Metric) -> str:
        """The name of a family's series."""
        return metric.newer_name if self._newer_names else metric.name

    def family(self, metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
        """A family with its series; nothing if there are none."""
        name = self.name_of(metric)
        lines: list[str] = []
        begun = False
        for label_text, value in samples:
            if not begun:
                begun = True
                lines.append(self._head(metric, name))
            lines.append(f"{name}{label_text} {value if type(value) is int else number(value)}\n")
            if len(lines) >= _SERIES_PER_PIECE:
                yield "".join(lines)
                lines.clear()
        if lines:
            yield "".join(lines)

    def histogram(
        self, metric: Metric, rows: Iterable[tuple[str, Sequence[tuple[str, int]], float, int]]
    ) -> Iterator[str]:
        """A histogram: for each of its label sets the cumulative buckets, the sum and the count."""
        name = self.name_of(metric)
        begun = False
        for label_text, buckets, total, count in rows:
            lines = [] if begun else [self._head(metric, name)]
            begun = True
            inner = label_text[1:-1]
            comma = "," if inner else ""
            lines += [f'{name}_bucket{{{inner}{comma}le="{bound}"}} {below}\n' for bound, below in buckets]
            lines.append(f"{name}_sum{label_text} {number(total)}\n{name}_count{label_text} {count}\n")
            yield "".join(lines)

    def _head(self, metric: Metric, name: str) -> str:
        kind: str = metric.kind
        if self._openmetrics and kind == "counter":
            if name.endswith("_total"):
                name = name.removesuffix("_total")
            else:
                # OpenMetrics would want another name for it.
                kind = "unknown"
        help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        if self._openmetrics:
            help_text = help_text.replace('"', r"\"")
        return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
