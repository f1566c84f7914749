"""The specifications of the five pipelines, which ``tidelog pipeline`` finds through an entry point.

Their implementations are imported when a pipeline is started.
"""

from __future__ import annotations

from tidelog.spark.pipelines.pipeline import Pipeline, lazily
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards import events
from tidelog_rewards.topics import ALL as TOPICS

_RUN_OPTIONS = "tidelog_rewards.cli.options:RunOptions"
_BACKFILL_OPTIONS = "tidelog_rewards.cli.options:BackfillOptions"
_EXPIRING_TABLES = tuple(kind.name for kind in events.LOGS)


def _check_earnings(settings: PipelineSettings) -> None:
    """What follows from the ledger is computed by reading what was just written."""
    if settings.cassandra is not None:
        settings.cassandra_options.require_reading_own_writes("the ledger of earnings")


COLLECT = Pipeline(
    name="collect",
    summary="All event logs into a lake of Iceberg tables and into Cassandra; late and repeated events too.",
    inputs=tuple(kind.topic for kind in events.LOGS),
    outputs=tuple(f"lake and table {kind.name}" for kind in events.LOGS),
    start=lazily("tidelog_rewards.jobs.collect.job:start"),
    backfill=lazily("tidelog_rewards.jobs.collect.job:backfill"),
    topics=TOPICS,
    expiring_tables=_EXPIRING_TABLES,
    incident_topic=events.INCIDENTS,
    preload=("tidelog_rewards.parsing", "tidelog_rewards.jobs.collect.task_work"),
    run_options=_RUN_OPTIONS,
    backfill_options=_BACKFILL_OPTIONS,
)
ACCOUNT_SWITCH = Pipeline(
    name="account-switch",
    summary="Finds many accounts in one hand: on one device, or behind one address.",
    inputs=(events.LOGIN.topic,),
    outputs=(
        f"topic {events.ACCOUNT_SWITCH_ALERTS}",
        f"topic {events.INCIDENTS}",
        "table incidents",
        f"topic {events.DEAD_LETTERS}",
    ),
    start=lazily("tidelog_rewards.jobs.account_switch.job:start"),
    backfill=lazily("tidelog_rewards.jobs.account_switch.job:backfill"),
    topics=TOPICS,
    expiring_tables=_EXPIRING_TABLES,
    incident_topic=events.INCIDENTS,
    preload=("tidelog_rewards.detection.alert_tasks", "tidelog_rewards.jobs.account_switch.detector"),
    run_options=_RUN_OPTIONS,
    backfill_options=_BACKFILL_OPTIONS,
)
INVITE_FRAUD = Pipeline(
    name="invite-fraud",
    summary="Scores invitations: one device, address or number block, bursts, rings, trees.",
    inputs=(events.INVITE.topic,),
    outputs=(
        f"topic {events.INVITE_FRAUD_ALERTS}",
        f"topic {events.INCIDENTS}",
        "table incidents",
        f"topic {events.DEAD_LETTERS}",
    ),
    start=lazily("tidelog_rewards.jobs.invite_fraud.job:start"),
    backfill=lazily("tidelog_rewards.jobs.invite_fraud.job:backfill"),
    topics=TOPICS,
    expiring_tables=_EXPIRING_TABLES,
    incident_topic=events.INCIDENTS,
    preload=("tidelog_rewards.detection.alert_tasks", "tidelog_rewards.jobs.invite_fraud.detector"),
    run_options=_RUN_OPTIONS,
    backfill_options=_BACKFILL_OPTIONS,
)
PHONE_REGION = Pipeline(
    name="phone-region",
    summary="Region, carrier and validity of phone numbers, added to the events that carry one.",
    inputs=(events.LOGIN.topic, events.MESSAGE_VERIFICATION.topic, events.INVITE.topic),
    outputs=(f"topic {events.USER_REGIONS}", "table user_regions"),
    start=lazily("tidelog_rewards.jobs.phone_region.job:start"),
    backfill=lazily("tidelog_rewards.jobs.phone_region.job:backfill"),
    topics=TOPICS,
    expiring_tables=_EXPIRING_TABLES,
    incident_topic=events.INCIDENTS,
    preload=("tidelog_rewards.jobs.phone_region.task_work",),
    run_options=_RUN_OPTIONS,
    backfill_options=_BACKFILL_OPTIONS,
)
EARNINGS = Pipeline(
    name="earnings",
    summary="Income and task progress of each user, exact to the cent, as events come.",
    inputs=(events.CREDIT.topic, events.TASK.topic),
    outputs=(
        "table user_earnings",
        "table user_earnings_daily",
        "table user_tasks",
        f"topic {events.USER_EARNINGS}",
    ),
    start=lazily("tidelog_rewards.jobs.earnings.job:start"),
    backfill=lazily("tidelog_rewards.jobs.earnings.job:backfill"),
    check=_check_earnings,
    topics=TOPICS,
    expiring_tables=_EXPIRING_TABLES,
    incident_topic=events.INCIDENTS,
    preload=("tidelog_rewards.jobs.earnings.part_work",),
    run_options=_RUN_OPTIONS,
    backfill_options=_BACKFILL_OPTIONS,
)

PIPELINES = (COLLECT, ACCOUNT_SWITCH, INVITE_FRAUD, PHONE_REGION, EARNINGS)
"""In the order in which ``tidelog pipeline list`` shows them."""
