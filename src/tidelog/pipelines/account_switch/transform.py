"""Logins to alerts: windows per device, scored by ``scoring``; pure DataFrame to DataFrame.

The state of the streaming query is the list of logins of each device and window, kept until the watermark
passes the window. In output mode ``update`` an alert comes with the micro-batch that has its evidence, and
again, with the same id, whenever more logins come.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.pipelines.account_switch.schema import RULES, Alert, Rules
from tidelog.pipelines.account_switch.scoring import DeliveredLogin, score
from tidelog.pipelines.alert_evidence import Window
from tidelog.pipelines.alert_windows import alert_records, interval
from tidelog.pipelines.events import ACCOUNT_SWITCH_ALERTS


def windows(logins: DataFrame, rules: Rules = RULES) -> DataFrame:
    """The logins of devices that may have switched too often: ``device_id``, ``window``, ``delivered``.

    ``logins`` are events of kind login with their ``partition`` and ``offset``.
    """
    evidence = F.struct("event_time", "event_id", "partition", "offset", "user_id", "ip")
    return (
        logins.where("success")
        .withWatermark("event_time", interval(rules.watermark))
        .groupBy("device_id", F.window("event_time", interval(rules.window), interval(rules.slide)))
        .agg(F.collect_list(evidence).alias("delivered"))
        # Nearly every device has one login: the rest is for those that could be over the limit.
        .where(F.size("delivered") > rules.switches)
    )


def alerts(windows: DataFrame, rules: Rules = RULES) -> DataFrame:
    """Alerts on devices that switch too often, as records with the values of ``schema``."""

    def alert(device_id: str, window: Window, delivered: Iterable[DeliveredLogin]) -> Alert | None:
        return score(device_id, window, delivered, rules)

    return alert_records(windows, "device_id", DeliveredLogin, alert, ACCOUNT_SWITCH_ALERTS)
