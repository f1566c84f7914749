"""The parts of the dashboard: each makes one panel of the view for a given width and number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tidelog_rewards import events
from tidelog_rewards.demo.view import Alert, Flow, PipelineFigures, Score, Step, View

ACCENT = "cyan"
EDGE = "bright_black"
_BLOCKS = "▁▂▃▄▅▆▇█"
_STATE_STYLES = {
    "waiting": "dim",
    "starting": "yellow",
    "running": "green",
    "stopped": "dim",
    "failed": "bold red",
}
_STEP_MARKS = {"waiting": Text("·", "dim"), "done": Text("✓", "green"), "failed": Text("✗", "bold red")}
_KIND_STYLES = {"account switch": "magenta", "invite fraud": "yellow"}
_QUIET_LAG = 20_000
_OUTPUT_NAMES = {
    events.ACCOUNT_SWITCH_ALERTS: "alerts: account switch",
    events.INVITE_FRAUD_ALERTS: "alerts: invite fraud",
    events.USER_REGIONS: "regions",
    events.USER_EARNINGS: "earnings",
    events.DEAD_LETTERS: "dead letters",
}


def framed(content: RenderableType, title: str) -> Panel:
    """A panel in the dashboard's style."""
    return Panel(
        content, title=f"[bold]{title}[/bold]", title_align="left", border_style=EDGE, box=box.ROUNDED
    )


def grid(*justify: str) -> Table:
    """Columns without lines; ``left`` columns take the room that is left over."""
    table = Table.grid(padding=(0, 1), expand=True)
    for each in justify:
        if each == "right":
            table.add_column(justify="right", no_wrap=True)
        else:
            table.add_column(ratio=1 if each == "wide" else None, no_wrap=True, overflow="ellipsis")
    return table


def number(value: float | None) -> str:
    """``12,345``; a dash where nothing is known."""
    return "–" if value is None else f"{value:,.0f}"


def money(cents: int) -> str:
    """Cents as people write amounts."""
    return f"{cents // 100:,}.{cents % 100:02d}"


def sparkline(values: Iterable[float], width: int) -> Text:
    """The last values as little bars, the tallest the greatest of them."""
    kept = list(values)[-width:]
    top = max(kept, default=0.0)
    if top <= 0:
        return Text("▁" * len(kept), "dim")
    bars = "".join(_BLOCKS[min(int(value / top * 7.999), 7)] for value in kept)
    return Text(bars, ACCENT)


def steps(view_steps: Sequence[Step]) -> Panel:
    """What is being waited for."""
    table = Table.grid(padding=(0, 1))
    for step in view_steps:
        mark: RenderableType = (
            Spinner("dots", style=ACCENT) if step.state == "doing" else _STEP_MARKS[step.state]
        )
        took = f"{step.seconds:.1f} s" if step.state != "waiting" else ""
        style = "dim" if step.state == "waiting" else "bold" if step.state == "doing" else ""
        table.add_row(mark, Text(step.label, style), Text(took, "dim"), Text(step.note, "dim"))
    return framed(table, "Starting")


def input_flows(flows: dict[str, Flow], width: int, lines: int) -> Panel:
    """Records in, by topic."""
    table = grid("wide", "right", "right", "left")
    spark_width = max(min(width - 48, 16), 0)
    shown = list(flows.items())[:lines]
    for topic, flow in shown:
        table.add_row(
            Text(topic), number(flow.total), Text(f"{number(flow.rate)}/s", "dim"),
            sparkline(flow.rates, spark_width),
        )  # fmt: skip
    return framed(table, "Events in")


def output_flows(view: View, width: int) -> Panel:
    """Records out, by topic."""
    table = grid("wide", "right", "right")
    for topic, flow in view.outputs.items():
        style = "red" if topic == events.DEAD_LETTERS and flow.total else ""
        label = _OUTPUT_NAMES.get(topic, topic) if width < 60 else topic
        table.add_row(Text(label, style), number(flow.total), Text(f"{number(flow.rate)}/s", "dim"))
    return framed(table, "Results out")


def pipelines(rows: Iterable[PipelineFigures], width: int) -> Panel:
    """Each pipeline's lag and pace."""
    roomy = width >= 58
    table = grid("wide", "left", "right", "right", *(["right", "left"] if roomy else []))
    heads = ["pipeline", "", "lag", "rows/s", *(["batch", ""] if roomy else [])]
    table.add_row(*(Text(head, "dim") for head in heads))
    for row in rows:
        lag_style = "yellow" if row.lag is not None and row.lag > _QUIET_LAG else ""
        cells: list[RenderableType] = [
            Text(row.name, "bold"),
            Text(row.state, _STATE_STYLES[row.state]),
            Text(number(row.lag), lag_style),
            number(row.rows_per_second) if row.batches else "–",
        ]
        if roomy:
            batch = f"{row.batch_ms / 1000:.1f} s" if row.batches else "–"
            cells += [batch, sparkline(row.lags, min(12, width - 52))]
        table.add_row(*cells)
    return framed(table, "Pipelines")


def alerts(view: View, width: int, lines: int) -> Panel:
    """The latest alerts, newest first, with their reasons."""
    latest: Sequence[Alert] = view.latest_alerts(lines)
    if not latest:
        return framed(Text("none yet", "dim"), "Latest alerts")
    table = grid("left", "left", "left", "wide") if width >= 70 else grid("left", "wide")
    for alert in latest:
        kind = Text(alert.kind, _KIND_STYLES.get(alert.kind, ACCENT))
        if width >= 70:
            table.add_row(Text(alert.time, "dim"), kind, Text(alert.subject, "bold"), Text(alert.reason))
        else:
            table.add_row(kind, Text(f"{alert.subject}: {alert.reason}"))
    return framed(table, f"Latest alerts ({view.alert_count:,})")


def bars(counts: Sequence[tuple[str, int]], total: int, width: int, title: str) -> Panel:
    """A bar chart of the largest counts."""
    if not counts:
        return framed(Text("none yet", "dim"), title)
    label_width = min(max(len(label) for label, _ in counts), max(width // 3, 10))
    # The frame and its padding take 4 cells, the gaps between the columns 3, a share such as "34 %" 4.
    bar_width = max(width - label_width - 11, 4)
    top = counts[0][1]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=label_width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=bar_width, no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for label, count in counts:
        length = max(round(count / top * bar_width), 1)
        table.add_row(Text(label), Text("█" * length, ACCENT), Text(f"{count / total:.0%}", "dim"))
    return framed(table, title)


def earners(top: Sequence[tuple[str, int]]) -> Panel:
    """Who has earned most."""
    if not top:
        return framed(Text("none yet", "dim"), "Top earners")
    table = grid("right", "wide", "right")
    for place, (user, cents) in enumerate(top, 1):
        table.add_row(Text(str(place), "dim"), Text(user), Text(money(cents), "bold green"))
    return framed(table, "Top earners")


def detection(scores: Sequence[Score]) -> Panel:
    """Detections against the planted truth."""
    if not scores:
        return framed(Text("nothing planted has shown yet", "dim"), "Found of what was planted")
    table = grid("wide", "right", "right")
    for score in scores:
        share = f"{score.found / score.planted:.0%}" if score.planted else ""
        found = f"{score.found:,} of {score.planted:,}"
        table.add_row(Text(score.kind, _KIND_STYLES.get(score.kind, "")), found, Text(share, "bold"))
    return framed(table, "Found of what was planted")


def dead_letters(view: View, lines: int) -> Panel:
    """Why events were set aside."""
    if not view.reasons:
        return framed(Text("none", "dim"), "Dead letters")
    table = grid("wide", "right")
    for reason, count in view.reasons.most_common(lines):
        table.add_row(Text(reason), number(count))
    return framed(table, f"Dead letters ({sum(view.reasons.values()):,})")
