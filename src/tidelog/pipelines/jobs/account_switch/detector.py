"""The rule as tasks apply it: what is remembered of a login, and which devices a batch of them reports.

A row of the state is a successful login, kept until the last window that it lies in is over. Nearly every
device logs in once: of those the column of keys is all that is looked at. Called by ``alert_tasks`` in
Spark's Python workers; plain Python and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.framework.alert_evidence import SlidingWindows, Window, microseconds, window_alerts
from tidelog.pipelines.framework.alert_state import KEY, STATE_COLUMNS, UNTIL, key_of
from tidelog.pipelines.framework.alert_tasks import Batch, Bucket, FollowedUp, Found, RowsOf
from tidelog.pipelines.framework.events import ACCOUNT_SWITCH_ALERTS, LOGIN, EventKind
from tidelog.pipelines.jobs.account_switch.schema import NAME, RULES, Alert, Rules
from tidelog.pipelines.jobs.account_switch.scoring import DeliveredLogin, score

_SCHEMA = pa.schema(
    [
        *STATE_COLUMNS,
        pa.field("time_us", pa.int64()),
        pa.field("event_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("user_id", pa.string()),
        pa.field("ip", pa.string()),
        pa.field("device_id", pa.string()),
    ]
)


@dataclass(frozen=True)
class SwitchDetector:
    """Finds devices that change accounts again and again."""

    rules: Rules = RULES
    within: Window | None = None
    """Only windows that reach into this time, and all of their logins; None: as they come."""
    name: str = NAME
    kind: EventKind = LOGIN
    topic: str = ACCOUNT_SWITCH_ALERTS
    schema: pa.Schema = _SCHEMA

    @property
    def watermark_delay_us(self) -> int:
        return microseconds(self.rules.watermark)

    @property
    def memory_us(self) -> int:
        """So long before the watermark a login may lie that still counts."""
        return microseconds(self.rules.window)

    @property
    def _windows(self) -> SlidingWindows:
        return SlidingWindows(microseconds(self.rules.window), microseconds(self.rules.slide))

    def rows(self, parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
        """The successful logins among parsed events."""
        wanted = parsed.field("success").fill_null(False)
        times_us = parsed.field("event_time").cast(pa.int64())
        if self.within is not None:
            start_us, end_us = self.within.start_us - self.memory_us, self.within.end_us + self.memory_us
            wanted = pc.and_(wanted, pc.and_(pc.greater_equal(times_us, start_us), pc.less(times_us, end_us)))
            wanted = wanted.fill_null(False)
        devices = parsed.field("device_id").filter(wanted)
        times_us = times_us.filter(wanted)
        columns = {
            KEY: pa.array(map(key_of, devices.to_pylist()), pa.uint32()),
            UNTIL: self._windows.over_us(times_us),
            "time_us": times_us,
            "event_id": parsed.field("event_id").filter(wanted),
            "partition": partitions.filter(wanted),
            "offset": offsets.filter(wanted),
            "user_id": parsed.field("user_id").filter(wanted),
            "ip": parsed.field("ip").filter(wanted),
            "device_id": devices,
        }
        return pa.table(columns, schema=_SCHEMA)

    def detect(self, bucket: Bucket) -> Found:
        """Alerts on the devices whose windows have got enough logins by the new ones."""
        in_time = bucket.new.filter(pc.greater(bucket.new[UNTIL], bucket.watermark_us))
        keys = bucket.frequent(in_time, self.rules.switches + 1)
        alerts = list(self._alerts(bucket, in_time, keys)) if len(keys) else []
        late = bucket.new.num_rows - in_time.num_rows
        return Found(alerts, in_time, self._counted(bucket.new), late)

    def _counted(self, new: pa.Table) -> int:
        if self.within is None:
            return int(new.num_rows)
        times_us = new["time_us"]
        inside = pc.and_(
            pc.greater_equal(times_us, self.within.start_us), pc.less(times_us, self.within.end_us)
        )
        return int(pc.sum(inside).as_py() or 0)

    def _alerts(self, bucket: Bucket, in_time: pa.Table, keys: pa.Array) -> Iterator[tuple[bytes, bytes]]:
        fresh: dict[str, set[Window]] = {}
        new = in_time.filter(pc.is_in(in_time[KEY], value_set=keys))
        for device, time_us in zip(new["device_id"].to_pylist(), new["time_us"].to_pylist(), strict=True):
            fresh.setdefault(device, set()).update(self._asked(time_us, bucket.watermark_us))
        logins: dict[str, list[DeliveredLogin]] = {}
        rows = bucket.rows_with(keys)
        columns = [rows[name].to_pylist() for name in DeliveredLogin._fields]
        for device, *login in zip(rows["device_id"].to_pylist(), *columns, strict=True):
            if device in fresh:
                logins.setdefault(device, []).append(DeliveredLogin(*login))
        for device, windows in fresh.items():

            def alert(
                window: Window, delivered: Sequence[DeliveredLogin], device: str = device
            ) -> Alert | None:
                return score(device, window, delivered, self.rules)

            yield from window_alerts(logins[device], sorted(windows), self.rules.switches + 1, alert)

    def _asked(self, time_us: int, watermark_us: int) -> Iterator[Window]:
        """The windows of a moment that are not over, or that reach into the range."""
        for window in self._windows.of(time_us):
            if self.within is None:
                if window.end_us > watermark_us:
                    yield window
            elif window.start_us < self.within.end_us and window.end_us > self.within.start_us:
                yield window

    def follow_up(self, left: list[bytes], rows_of: RowsOf, batch: Batch) -> FollowedUp:
        """A device is one bucket's: nothing is ever left."""
        raise AssertionError("account-switch leaves nothing to follow up")
