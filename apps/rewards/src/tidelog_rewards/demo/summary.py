"""What is left on the screen when a run has ended: figures, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog_rewards import events
from tidelog_rewards.demo.panels import money, number
from tidelog_rewards.demo.settings import DemoSettings
from tidelog_rewards.demo.view import View


def show(view: View, settings: DemoSettings, console: Console, proofs: Sequence[str]) -> None:
    """Print the summary; ``proofs`` are sentences about what was checked against the generator's truth."""
    console.print()
    console.print(Text("What happened", "bold"))
    live = (
        "not every pipeline had time to work"
        if view.live_after_s is None
        else f"live after {view.live_after_s:.1f} s"
    )
    console.print(
        f"  {number(view.events_in.total)} events in, {number(view.records_out.total)} results out, "
        f"in {view.elapsed_s:.0f} s ({live}).",
        highlight=False,
    )
    console.print(_pipelines(view))
    for line in [*_findings(view), *proofs]:
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    console.print()
    console.print(Text("What to try next", "bold"))
    for remark, command in next_steps(settings, view.address):
        console.print(f"  [dim]{remark}[/dim]", highlight=False, soft_wrap=True)
        console.print(Text(f"    {command}", "cyan"), soft_wrap=True)
    console.print()


def _pipelines(view: View) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=True)
    table.add_column("pipeline")
    for head in ("events", "batches", "lag"):
        table.add_column(head, justify="right")
    table.add_column("state")
    for row in view.pipelines.values():
        style = "bold red" if row.state == "failed" else ""
        table.add_row(
            row.name, number(row.rows), number(row.batches), number(row.lag), Text(row.state, style)
        )
    return table


def _findings(view: View) -> list[str]:
    lines = []
    for score in view.scores:
        found = f"{score.kind}: found {score.found} of {score.planted} planted"
        wrong = f", {score.false_alarms} false alarms" if score.false_alarms else ", no false alarm"
        lines.append(found + wrong)
    if view.regions:
        top = ", ".join(f"{region} ({count:,})" for region, count in view.regions.most_common(3))
        lines.append(f"regions: {top}")
    if view.earnings_cents:
        top = ", ".join(f"{user} {money(cents)}" for user, cents in view.top_earners(3))
        lines.append(f"top earners: {top}")
    if view.reasons:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in view.reasons.most_common(3))
        lines.append(f"dead letters: {view.reasons.total():,}, most often {reasons}")
    return lines


def next_steps(settings: DemoSettings, address: str) -> list[tuple[str, str]]:
    """What a person may type now; the broker has stopped, its data are still there."""
    directory = settings.directory
    server = "" if address.endswith(":9092") else f" -b {address}"
    if settings.cassandra is None:
        tables = (
            "ask the tables:",
            f"for part in {directory / 'earnings'}/*.sqlite; do sqlite3 $part "
            "'select total_cents, user_id from user_earnings'; done | sort -nr | head -5",
        )
        resume = f"tidelog demo --resume --dir {directory}"
    else:
        keyspace = settings.keyspace_marker.read_text().strip()
        address_of_node = settings.cassandra.split(",")[0].replace(":", " ")
        tables = (
            "ask the tables, while Cassandra runs:",
            f"cqlsh {address_of_node} -e 'select user_id, total_cents from {keyspace}.user_earnings limit 5'",
        )
        resume = f"tidelog demo --resume --dir {directory} --cassandra {settings.cassandra}"
    return [
        (
            "the broker's data are kept; start it again, and look around from another terminal:",
            f"tidelog start --data-dir {settings.broker_data} --listen {address or '127.0.0.1:9092'}",
        ),
        ("read the alerts:", f"tidelog consume {events.INVITE_FRAUD_ALERTS} --from-beginning{server}"),
        ("see how far each pipeline is:", f"tidelog groups describe tidelog-pipeline-earnings{server}"),
        tables,
        (
            "ask the lake:",
            f"tidelog lake status --directory {directory}",
        ),
        ("go on where this run ended, instead of afresh:", resume),
    ]
