"""The view as a terminal shows it: as many panels as its width and height bear, the most telling first.

``render`` is pure: the same view, width and height give the same picture, which is how tests look at it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from tidelog_rewards.demo import panels
from tidelog_rewards.demo.view import View

WIDE = 96
"""From this width on panels stand side by side."""
MEDIUM = 70
"""From this width on the usual terminal, 80 by 24, has a picture of its own."""
_MEDIUM_LINES = 22
_TALLEST_BOTTOM = 14
_FRAME = 2


def render(view: View, width: int, height: int) -> RenderableType:
    """The whole picture."""
    if width >= WIDE:
        body = _wide(view, width, height - 2)
    elif width >= MEDIUM and height >= _MEDIUM_LINES:
        body = _medium(view, width, height - 2)
    else:
        body = _narrow(view, width, height - 2)
    layout = Layout()
    layout.split_column(
        Layout(_header(view, width), size=1), Layout(body, name="body"), Layout(_footer(view, width), size=1)
    )
    return layout


def _wide(view: View, width: int, height: int) -> RenderableType:
    half = width // 2
    flow_lines = len(view.inputs)
    top_height = max(flow_lines, len(view.pipelines) + len(view.outputs) + _FRAME + 1) + _FRAME
    rest = height - top_height
    layout = Layout()
    top = Layout(size=min(top_height, height))
    if not view.is_live:
        top_right: RenderableType = panels.steps(view.steps)
    else:
        top_right = Group(
            panels.pipelines(view.pipelines.values(), width - half), panels.output_flows(view, width - half)
        )
    top.split_row(Layout(panels.input_flows(view.inputs, half, flow_lines), size=half), Layout(top_right))
    parts = [top]
    if rest >= 5:
        alert_lines = max(min(rest // 2, 12) - _FRAME, 1)
        alerts = panels.alerts(view, width, alert_lines)
        parts.append(Layout(alerts, size=alert_lines + _FRAME))
        rest -= alert_lines + _FRAME
    if rest >= 4:
        parts.append(_bottom(view, width, min(rest, _TALLEST_BOTTOM)))
        parts.append(Layout(Text("")))
    layout.split_column(*parts)
    return layout


def _bottom(view: View, width: int, height: int) -> Layout:
    """Regions, earners, and beside them detection above dead letters."""
    third = width // 3
    lines = min(height - _FRAME, 12)
    regions = panels.bars(view.regions.most_common(lines), view.regions.total(), third, "Regions")
    score_height = max(len(view.scores), 1) + _FRAME
    column = Layout()
    if height - score_height >= 3:
        column.split_column(
            Layout(panels.detection(view.scores), size=score_height),
            Layout(panels.dead_letters(view, height - score_height - _FRAME)),
        )
    else:
        column.update(panels.detection(view.scores))
    row = Layout(size=height)
    row.split_row(
        Layout(regions, size=third), Layout(panels.earners(view.top_earners(lines)), size=third), column
    )
    return row


def _medium(view: View, width: int, height: int) -> RenderableType:
    """Pipelines, a few alerts, regions beside earners, and the detections in one line."""
    if view.is_live:
        first: RenderableType = panels.pipelines(view.pipelines.values(), width)
        first_height = len(view.pipelines) + 1 + _FRAME
    else:
        first, first_height = panels.steps(view.steps), len(view.steps) + _FRAME
    alert_lines = max(3, (height - first_height - 6) // 2)
    rest = height - first_height - alert_lines - _FRAME - 1
    half = width // 2
    lines = max(rest - _FRAME, 1)
    regions = panels.bars(view.regions.most_common(lines), view.regions.total(), half, "Regions")
    row = Layout(size=rest)
    row.split_row(Layout(regions, size=half), Layout(panels.earners(view.top_earners(lines))))
    layout = Layout()
    layout.split_column(
        Layout(first, size=first_height),
        Layout(panels.alerts(view, width, alert_lines), size=alert_lines + _FRAME),
        row,
        Layout(_one_line(view), size=1),
    )
    return layout


def _one_line(view: View) -> Text:
    """Detections and dead letters where there is no room for panels."""
    parts = [f"{score.kind} {score.found} of {score.planted}" for score in view.scores]
    if view.reasons:
        parts.append(f"dead letters {view.reasons.total():,}")
    found = "found of what was planted: " if view.scores else ""
    return Text(f" {found}{' · '.join(parts)}", "dim", no_wrap=True, overflow="ellipsis")


def _narrow(view: View, width: int, height: int) -> RenderableType:
    """One column: panels one below the other while there is room."""
    wanted: list[tuple[int, RenderableType]] = []
    if not view.is_live:
        wanted.append((len(view.steps) + _FRAME, panels.steps(view.steps)))
    else:
        wanted.append((len(view.pipelines) + 1 + _FRAME, panels.pipelines(view.pipelines.values(), width)))
    wanted.append((5 + _FRAME, panels.alerts(view, width, 5)))
    wanted.append((len(view.outputs) + _FRAME, panels.output_flows(view, width)))
    wanted.append((max(len(view.scores), 1) + _FRAME, panels.detection(view.scores)))
    wanted.append((3 + _FRAME, panels.earners(view.top_earners(3))))
    total = view.regions.total()
    wanted.append((4 + _FRAME, panels.bars(view.regions.most_common(4), total, width, "Regions")))
    wanted.append((len(view.inputs) + _FRAME, panels.input_flows(view.inputs, width, len(view.inputs))))
    return _stacked(wanted, height)


def _stacked(wanted: Sequence[tuple[int, RenderableType]], height: int) -> RenderableType:
    kept: list[RenderableType] = []
    for needed, panel in wanted:
        if needed > height and kept:
            continue
        kept.append(panel)
        height -= needed
    return Group(*kept)


def _header(view: View, width: int) -> RenderableType:
    clock = f"{int(view.elapsed_s) // 60:02d}:{int(view.elapsed_s) % 60:02d}"
    if view.seconds is not None:
        clock += f" of {int(view.seconds) // 60:02d}:{int(view.seconds) % 60:02d}"
    left = Text.assemble((" TIDELOG ", f"bold black on {panels.ACCENT}"), " ")
    left.append_text(_state(view))
    if width >= WIDE and not view.stopping:
        left.append(f"  {panels.number(view.events_in.rate)} events/s in", "bold")
        left.append(f"   {panels.number(view.records_out.rate)} results/s out", "bold")
        left.append(f"   lag {panels.number(view.total_lag)}")
    table = Table.grid(expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    table.add_row(left, Text(f"{view.address}  {clock} " if width >= 60 else f"{clock} ", "dim"))
    return table


def _state(view: View) -> Text:
    if view.stopping:
        return Text(f"● {view.stopping}", "yellow")
    if view.failed():
        return Text(f"● {view.failed()[0].name} has failed", "bold red")
    if view.is_live:
        return Text("● live", "bold green")
    doing = next((step.label for step in view.steps if step.state == "doing"), "")
    return Text(f"● starting: {doing}", "yellow")


def _footer(view: View, width: int) -> RenderableType:
    server = "" if view.address.endswith(":9092") else f" -b {view.address}"
    text = Text(" Ctrl-C ends it", "dim")
    if view.console:
        text.append("   in a browser: ", "dim")
        text.append(view.console, panels.ACCENT)
    if width >= WIDE and view.address:
        text.append("   in another terminal: ", "dim")
        text.append(f"tidelog consume ml_invite_fraud_alerts --from-beginning{server}", panels.ACCENT)
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
