"""``tidelog alerts``: list and show incidents, dismiss them, and allow their subjects for good.

Reads the compacted topic of incidents and writes that of verdicts, which a pipeline takes at its next
micro-batch. Needs no Spark. What a pipeline has not told yet is told here at once: a dismissed incident gets
a record that says so.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidelog.cli.connect import client_options, reached_options
from tidelog.cli.failure import Failure
from tidelog.cli.output import Changes, examples, is_terminal, print_json, print_table, printable, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.values import parse_time_ms
from tidelog_rewards.detection import incident_topic
from tidelog_rewards.detection.verdicts import NEVER_US, Verdict

app = typer.Typer()

_LIVE = ("open", "updated")
_STATES = (*_LIVE, "closed", "dismissed")
_SHOWN_ID = 12

IncidentId = Annotated[str, typer.Argument(metavar="ID", help="The incident's id, or how it begins.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for others to read.")]


@app.command(
    "list",
    epilog=examples(
        "tidelog alerts list", "tidelog alerts list --state closed", "tidelog alerts list --all --json"
    ),
)
@grouped
def list_alerts(
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="Only these: open, updated, closed, dismissed."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Closed and dismissed ones, too.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List incidents that last, the highest score first."""
    if state is not None and state not in _STATES:
        raise Failure(f"--state {state!r} is none: choose {', '.join(_STATES)}")
    wanted = (state,) if state else _STATES if every else _LIVE
    found = [each for each in _incidents(connection).values() if each["state"] in wanted]
    found.sort(key=lambda each: (-each["peak"], each["opened"], each["alert_id"]))
    if json:
        print_json(found)
        return
    if not found and is_terminal():
        remark("there is no such incident")
        return
    rows = [
        (
            each["alert_id"][:_SHOWN_ID],
            each["state"],
            each["score"],
            each["peak"],
            each["subject_kind"],
            each["subject"],
            each["opened"],
            each["updated"],
            [reason["rule"] for reason in each["reasons"]],
        )
        for each in found
    ]
    columns = ("id", "state", "score", "peak", "kind", "subject", "opened", "updated", "reasons")
    print_table(columns, rows, right=("score", "peak"), optional=("opened", "peak"))


@app.command("show", epilog=examples("tidelog alerts show 4f2a91c0", "tidelog alerts show 4f2a91c0 --json"))
@grouped
def show_alert(
    incident: IncidentId,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show all that is known of an incident: reasons, score over time, and the events that prove it."""
    told = _one(_incidents(connection), incident)
    if json:
        print_json(told)
        return
    for name, value in told.items():
        if name not in {"reasons", "history", "logins", "invites", "rules"}:
            shown = printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))
            print(f"{name:<14}{shown}" if is_terminal() else f"{name}\t{shown}")
    rules = told["rules"]
    version = printable(f"{rules['version']} ({rules['digest']})" if is_terminal() else str(rules))
    print(f"{'rules':<14}{version}" if is_terminal() else f"rules\t{version}")
    print_table(
        ("reason", "points", "count", "of"),
        [(each["rule"], each["points"], each["count"], each["value"]) for each in told["reasons"]],
        right=("points", "count"),
    )
    print_table(("time", "score"), [tuple(each) for each in told["history"]], right=("score",))
    proof = told.get("logins", told.get("invites", []))
    if proof:
        columns = tuple(proof[0])
        print_table(columns, [tuple(each.values()) for each in proof])


@app.command(
    "dismiss",
    epilog=examples(
        "tidelog alerts dismiss 4f2a91c0 --note 'a test phone'",
        "tidelog alerts dismiss 4f2a91c0 --until 2026-12-01T00:00:00Z",
        "tidelog alerts dismiss 4f2a91c0 --undo",
    ),
)
@grouped
def dismiss_alert(
    incident: IncidentId,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Evidence from then on counts again.", show_default="for ever"
        ),
    ] = None,
    note: Note = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Say that an incident is none; it stays dismissed while more of the same comes."""
    until_us = NEVER_US if until is None else parse_time_ms(until, "--until") * 1000
    told = _one(_incidents(connection), incident)
    verdict = _verdict("dismissed", told, note, until=until or "", until_us=until_us)
    _say(verdict, told, connection, undo=undo, json=json)


@app.command(
    "allow", epilog=examples("tidelog alerts allow 4f2a91c0", "tidelog alerts allow 4f2a91c0 --undo")
)
@grouped
def allow_subject(
    incident: IncidentId,
    note: Note = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Put the subject of an incident on the allow list: it is not reported any more, whatever it does."""
    told = _one(_incidents(connection), incident)
    _say(_verdict("allowed", told, note), told, connection, undo=undo, json=json)


def _say(verdict: Verdict, told: dict[str, Any], connection: Connection, *, undo: bool, json: bool) -> None:
    state = incident_topic.write_verdict(client_options(connection), verdict, told, undo=undo)
    done = f"no longer {verdict.verdict}" if undo else verdict.verdict
    known = "" if state == verdict.verdict and not undo else f": its incident is {state}"
    with Changes(json=json, quiet=True) as changes:
        changes.add(
            f"{told['subject_kind']} {told['subject']} is {done}{known}",
            id=told["alert_id"],
            subject_kind=told["subject_kind"],
            subject=told["subject"],
            state=state,
        )


def _verdict(kind: Any, told: Mapping[str, Any], note: str, **more: Any) -> Verdict:
    return Verdict(
        kind,
        told["pipeline"],
        told["subject_kind"],
        told["subject"],
        told["alert_id"],
        by=getpass.getuser(),
        note=note,
        **more,
    )


def _incidents(connection: Connection) -> dict[str, dict[str, Any]]:
    return incident_topic.read_incidents(reached_options(connection))


def _one(incidents: Mapping[str, dict[str, Any]], beginning: str) -> dict[str, Any]:
    found = [each for name, each in incidents.items() if name.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"there is no incident {beginning}: `tidelog alerts list --all` shows them")
    raise Failure(f"{beginning} begins the ids of {len(found)} incidents: give more of it")
