"""The commands that this package adds to ``tidelog``; their modules are imported when they are used."""

from __future__ import annotations

from tidelog.extensions import Command

ALERTS = Command(
    "tidelog_rewards.cli.alerts.command",
    "List and show what the pipelines have detected; dismiss it, or allow who is honest.",
)
DEMO = Command("tidelog_rewards.cli.demo", "See it all at work: a broker, events and the pipelines, live.")
EVENTS = Command(
    "tidelog_rewards.cli.events.command",
    "Make traffic for the pipelines, and measure what they detect in it.",
)
PHONES = Command(
    "tidelog_rewards.cli.phones.command",
    "See and rotate the keys of the tokens that stand for phone numbers.",
)
DRY_RUN = Command(
    "tidelog_rewards.cli.dry_run_command",
    "Say what a change of the rules would have raised over a past range; writes nothing, needs no Spark.",
)
