"""The logins of one device in one window → an alert, or none; plain Python without Spark.

A login that was delivered twice (same ``event_id``) counts once; the first delivery is the evidence. Called
by ``transform`` in Spark's Python workers, with the devices that have enough logins to be over the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.pipelines.framework.alert_evidence import Window, alert_id, distinct_events, time_text
from tidelog.pipelines.jobs.account_switch.schema import NAME, RULES, SHOWN, Alert, Login, Rules


class DeliveredLogin(NamedTuple):
    """A successful login and the place of its record; the fields are those of the query's state."""

    time_us: int
    event_id: str
    partition: int
    offset: int
    user_id: str
    ip: str

    @property
    def shown(self) -> Login:
        """As an alert shows it."""
        time = time_text(self.time_us)
        return Login(self.user_id, self.event_id, time, self.ip, self.partition, self.offset)


def score(
    device_id: str, window: Window, delivered: Iterable[DeliveredLogin], rules: Rules = RULES
) -> Alert | None:
    """The alert on a device for what it did in a window, if that is one."""
    logins = distinct_events(delivered)
    switches = sum(before.user_id != after.user_id for before, after in pairwise(logins))
    if switches < rules.switches:
        return None
    accounts = sorted({login.user_id for login in logins})
    return Alert(
        alert_id=alert_id(NAME, device_id, window=window),
        pipeline=NAME,
        device_id=device_id,
        window_start=time_text(window.start_us),
        window_end=time_text(window.end_us),
        switches=switches,
        account_count=len(accounts),
        accounts=accounts[:SHOWN],
        severity=_severity(switches, rules),
        first_login=time_text(logins[0].time_us),
        last_login=time_text(logins[-1].time_us),
        logins=_shown(logins),
    )


def _shown(logins: Sequence[DeliveredLogin]) -> list[Login]:
    return [login.shown for login in logins[:SHOWN]]


def _severity(switches: int, rules: Rules) -> str:
    if switches >= rules.critical:
        return "critical"
    return "high" if switches >= rules.high else "medium"
