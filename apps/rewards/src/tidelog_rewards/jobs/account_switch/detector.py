"""The rules as tasks apply them: what is remembered of logins, and who is judged by a batch of them.

A login is a row by its device, and one by its account:

    LOGIN    by the device   the login itself, for a day and as long as others may come late
    SEEN     by the device   the account was there on a day, for thirty days; once a day, made of the login
    ACCOUNT  by the account  it was on the device, in the network, on a day, for thirty days; once a day

``pair`` is the other name of a row (the account, or the device), ``mark`` what makes it one of its day.

Nearly every device has one account, and nearly every account one device: of those the columns of keys and
pairs are all that is looked at. A device with several accounts, and an account that goes through several
devices, are left to the follow-up, which loads what it takes to judge them (``scoring``): first without
asking where accounts are at home, and only for those that would be reported with it.

Called by ``alert_tasks`` in Spark's Python workers; plain Python and Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog_rewards.detection.alert_state import KEY, STATE_COLUMNS, UNTIL, key_of, keys_of, pair_keys_of
from tidelog_rewards.detection.alert_tasks import Batch, Bucket, Findings, Found, RowsOf
from tidelog_rewards.detection.incidents import (
    DAY_US,
    HOUR_US,
    MONTH_DAYS,
    MONTH_US,
    US_PER_S,
    IncidentBook,
    Judged,
    day_of,
)
from tidelog_rewards.detection.networks import network
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, LOGIN, EventKind
from tidelog_rewards.jobs.account_switch.schema import NAME, USUAL, Rules
from tidelog_rewards.jobs.account_switch.scoring import DeliveredLogin, HasHome, judge_address, judge_device

_LOGIN, _SEEN, _ACCOUNT = range(3)
_SCHEMA = pa.schema(
    [
        *STATE_COLUMNS,
        pa.field("kind", pa.uint8()),
        pa.field("pair", pa.uint64()),
        pa.field("mark", pa.uint64()),
        pa.field("time_us", pa.int64()),
        pa.field("event_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("user_id", pa.string()),
        pa.field("ip", pa.string()),
        pa.field("device_id", pa.string()),
        pa.field("success", pa.bool_()),
    ]
)
_HELD = -1
"""Instead of the number of a new row: it is in the state."""
_MOST_AT_ADDRESS = 500
"""Behind an address with more short-lived devices than this is a town: nobody can tell it from a farm."""


@dataclass(frozen=True)
class SwitchDetector:
    """Finds many accounts in one hand."""

    rules: Rules = field(default_factory=lambda: USUAL.rules)
    name: str = NAME
    kind: EventKind = LOGIN
    topic: str = ACCOUNT_SWITCH_ALERTS
    schema: pa.Schema = _SCHEMA

    @property
    def watermark_delay_us(self) -> int:
        return self.rules.lateness_s * US_PER_S

    @property
    def memory_us(self) -> int:
        return MONTH_US + DAY_US

    @property
    def quiet_us(self) -> int:
        return self.rules.quiet_s * US_PER_S

    @property
    def allow(self) -> Mapping[str, Sequence[str]]:
        return self.rules.allow

    def ruled(self, rules: Rules) -> SwitchDetector:
        """The same with other rules."""
        return replace(self, rules=rules)

    def rows(self, parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
        """The logins among parsed events: each by its device, the successful ones by their account."""
        is_event = pc.is_valid(parsed.field("event_id"))
        devices = parsed.field("device_id").filter(is_event)
        users = parsed.field("user_id").filter(is_event)
        addresses = parsed.field("ip").filter(is_event)
        times_us = parsed.field("event_time").filter(is_event).cast(pa.int64())
        device_keys = keys_of(devices.to_pylist())
        user_keys = keys_of(users.to_pylist())
        logins = {
            KEY: device_keys,
            # A day before the first hour that can still change.
            UNTIL: pc.add(times_us, DAY_US + HOUR_US),
            "kind": _repeated(_LOGIN, len(devices)),
            "pair": user_keys,
            "mark": user_keys,
            "time_us": times_us,
            "event_id": parsed.field("event_id").filter(is_event),
            "partition": partitions.filter(is_event),
            "offset": offsets.filter(is_event),
            "user_id": users,
            "ip": addresses,
            "device_id": devices,
            "success": parsed.field("success").filter(is_event),
        }
        by_device = pa.table(logins, schema=_SCHEMA)
        good = by_device.filter(by_device["success"])
        networks = [network(ip) for ip in good["ip"].to_pylist()]
        by_account = {
            **_seen_columns(good, _ACCOUNT),
            KEY: good["pair"],
            "pair": good[KEY],
            "mark": pair_keys_of(networks, good[KEY]),
            "time_us": good["time_us"],
            "ip": pa.array(networks, pa.string()),
        }
        return pa.concat_tables([by_device, pa.table(by_account, schema=_SCHEMA)])

    def detect(self, bucket: Bucket) -> Found:
        """Keep what is in time, and leave devices and accounts that are not alone to be judged."""
        is_login = pc.equal(bucket.new["kind"], _LOGIN)
        counted = bucket.new.filter(is_login)
        logins = counted.filter(pc.greater_equal(counted["time_us"], bucket.watermark_us))
        accounts = bucket.new.filter(pc.invert(is_login))
        accounts = accounts.filter(pc.greater_equal(accounts["time_us"], bucket.watermark_us))
        good = logins.filter(logins["success"])
        seen = pa.concat_tables(
            [
                pa.table(_seen_columns(good, _SEEN), schema=_SCHEMA),
                pa.table({**_columns(accounts), **_day_columns(accounts)}, schema=_SCHEMA),
            ]
        )
        fresh = _fresh(bucket, seen)
        left = [
            *self._shared_devices(bucket, logins, fresh),
            *self._moved_accounts(bucket, accounts),
        ]
        return Found(
            pa.concat_tables([logins, fresh]),
            counted["time_us"],
            counted.num_rows - logins.num_rows,
            tuple(msgspec.msgpack.encode(each) for each in left),
        )

    def _shared_devices(self, bucket: Bucket, logins: pa.Table, fresh: pa.Table) -> Iterator[tuple[int, str]]:
        """Devices with several accounts, and devices with many failures."""
        accounts, failures = min(self.rules.least_accounts, self.rules.least_shared), self.rules.least_failed
        keys = bucket.frequent(logins, min(accounts, failures))
        if not len(keys):
            return
        columns = (KEY, "kind", "pair", "success")
        mine = [logins, fresh.filter(pc.equal(fresh["kind"], _SEEN))]
        new = pa.concat_tables(each.select(columns) for each in mine)
        rows = pa.concat_tables(
            [
                bucket.state.rows_of(keys, columns),
                new.filter(pc.is_in(new[KEY], value_set=keys)),
            ]
        )
        rows = rows.filter(pc.less(rows["kind"], _ACCOUNT))
        is_good = rows.filter(rows["success"])
        by_key = is_good.group_by(KEY).aggregate([("pair", "count_distinct")])
        several = pc.greater_equal(by_key["pair_count_distinct"], accounts)
        failed = pc.value_counts(rows.filter(pc.invert(rows["success"]))[KEY])
        wanted = pa.concat_arrays(
            [
                by_key.filter(several)[KEY].combine_chunks(),
                failed.field("values").filter(pc.greater_equal(failed.field("counts"), failures)),
            ]
        )
        names = logins.filter(pc.is_in(logins[KEY], value_set=wanted))["device_id"]
        for device in pc.unique(names).to_pylist():
            yield _LOGIN, device

    def _moved_accounts(self, bucket: Bucket, accounts: pa.Table) -> Iterator[tuple[int, str]]:
        """Accounts that go through several devices."""
        keys = bucket.frequent(accounts, self.rules.rotation_devices)
        if not len(keys):
            return
        columns = (KEY, "kind", "pair")
        rows = pa.concat_tables(
            [
                bucket.state.rows_of(keys, columns),
                accounts.filter(pc.is_in(accounts[KEY], value_set=keys)).select(columns),
            ]
        )
        rows = rows.filter(pc.equal(rows["kind"], _ACCOUNT))
        by_key = rows.group_by(KEY).aggregate([("pair", "count_distinct")])
        several = pc.greater_equal(by_key["pair_count_distinct"], self.rules.rotation_devices)
        moved = by_key.filter(several)[KEY]
        names = accounts.filter(pc.is_in(accounts[KEY], value_set=moved))["user_id"]
        for user in pc.unique(names).to_pylist():
            yield _ACCOUNT, user

    def judge(self, left: list[bytes], rows_of: RowsOf, book: IncidentBook, batch: Batch) -> Findings:
        """The devices and addresses that the new logins have to do with."""
        named = [msgspec.msgpack.decode(each, type=tuple[int, str]) for each in left]
        known = _Known(rows_of)
        accounts = {name for kind, name in named if kind == _ACCOUNT}
        known.load_accounts(accounts)
        moved = {place.device for account in accounts for place in known.places[account]}
        devices = {name for kind, name in named if kind == _LOGIN} | moved
        known.load_devices(devices)
        suspects = [
            _Suspect(
                {device},
                partial(
                    judge_device, device, known.logins[device], known.days[device], batch.since_us, self.rules
                ),
            )
            for device in sorted(devices)
            if known.is_worth(device, self.rules)
        ]
        at_addresses, dropped = self._addresses(known, accounts, devices, book, batch)
        return Findings(self._judged(known, [*suspects, *at_addresses]), dropped)

    def _judged(self, known: _Known, suspects: Sequence[_Suspect]) -> list[Judged]:
        """The judgements; where one would be a report, with the homes of the accounts."""
        found = [suspect.judge() for suspect in suspects]
        again = [at for at, judged in enumerate(found) if judged.points]
        users = {at: known.users_of(suspects[at].devices) for at in again}
        known.load_accounts(set().union(*users.values()))
        known.load_devices(
            {place.device for at in again for user in users[at] for place in known.places[user]}
        )
        for at in again:
            found[at] = suspects[at].judge(has_home=self._homes(known, suspects[at]))
        return found

    def _homes(self, known: _Known, suspect: _Suspect) -> HasHome:
        def has_home(user: str, day: int, networks: set[str]) -> bool:
            return any(
                day - MONTH_DAYS < place.day < day - 1
                and place.device not in suspect.devices
                and place.network not in networks
                and known.crowd(place.device, day) < self.rules.crowded
                for place in known.places[user]
            )

        return has_home

    def _addresses(
        self, known: _Known, accounts: set[str], devices: set[str], book: IncidentBook, batch: Batch
    ) -> tuple[list[_Suspect], int]:
        """Link short-lived devices to their addresses; the addresses that have enough of them."""
        least = self.rules.rotation_devices
        rotated = {
            place.device
            for account in accounts
            if len({each.device for each in known.places[account]}) >= least
            for place in known.places[account]
        }
        places: dict[str, dict[str, int]] = {}
        for device in devices:
            if device in rotated or len(known.users(device)) >= least:
                for login in known.logins[device]:
                    if login.success and login.time_us >= batch.linked_us:
                        last_us = places.setdefault(f"address\n{login.ip}", {}).get(device, 0)
                        places[f"address\n{login.ip}"][device] = max(last_us, login.time_us)
        linked = book.link(places)
        known.load_devices(
            {name for there in linked.values() if least <= len(there) <= _MOST_AT_ADDRESS for name in there}
        )
        suspects, dropped = [], 0
        for place, there in sorted(linked.items()):
            ip = place.partition("\n")[2]
            if len(there) > _MOST_AT_ADDRESS:
                dropped += 1
            elif len(there) >= least:
                logins = [login for name in there for login in known.logins[name] if login.ip == ip]
                days = {name: known.days[name] for name in there}
                judge = partial(judge_address, ip, logins, days, batch.since_us, self.rules)
                suspects.append(_Suspect(there, judge))
        return suspects, dropped


class _Suspect(NamedTuple):
    """A device or an address that may be reported: its devices, and how it is judged."""

    devices: set[str]
    judge: Callable[..., Judged]


class _Place(msgspec.Struct, frozen=True, order=True):
    """Where an account was on a day."""

    day: int
    device: str
    network: str


class _Known:
    """What was loaded of devices and accounts."""

    def __init__(self, rows_of: RowsOf) -> None:
        self._rows_of = rows_of
        self.logins: dict[str, list[DeliveredLogin]] = {}
        self.days: dict[str, dict[int, set[str]]] = {}
        self.places: dict[str, list[_Place]] = {}

    def load_devices(self, devices: Iterable[str]) -> None:
        """Load the logins and days of devices that are not known yet."""
        wanted = set(devices) - self.logins.keys()
        for device in wanted:
            self.logins[device], self.days[device] = [], {}
        rows = self._rows_of(map(key_of, wanted)) if wanted else _SCHEMA.empty_table()
        rows = rows.filter(pc.less(rows["kind"], _ACCOUNT))
        columns = [rows[name].to_pylist() for name in ("kind", *DeliveredLogin._fields)]
        for kind, *values in zip(*columns, strict=True):
            login = DeliveredLogin(*values)
            if login.device_id not in wanted:
                continue
            if kind == _LOGIN:
                self.logins[login.device_id].append(login)
            else:
                self.days[login.device_id].setdefault(day_of(login.time_us), set()).add(login.user_id)

    def load_accounts(self, accounts: Iterable[str]) -> None:
        """Load where accounts that are not known yet have been."""
        wanted = set(accounts) - self.places.keys()
        for account in wanted:
            self.places[account] = []
        rows = self._rows_of(map(key_of, wanted)) if wanted else _SCHEMA.empty_table()
        rows = rows.filter(pc.equal(rows["kind"], _ACCOUNT))
        columns = (rows[name].to_pylist() for name in ("user_id", "time_us", "device_id", "ip"))
        for user, time_us, device, net in zip(*columns, strict=True):
            if user in wanted:
                self.places[user].append(_Place(day_of(time_us), device, net))

    def users(self, device: str) -> set[str]:
        """The accounts on a device, as far as is known."""
        logged_in = {each.user_id for each in self.logins[device] if each.success}
        return logged_in.union(*self.days[device].values())

    def users_of(self, devices: Iterable[str]) -> set[str]:
        """The accounts on devices, those with failures included."""
        return {
            user
            for device in devices
            for user in (*(each.user_id for each in self.logins[device]), *self.users(device))
        }

    def crowd(self, device: str, day: int) -> int:
        """The accounts on a device, as far back from a day as nothing changes any more."""
        days = [users for at, users in self.days[device].items() if day - MONTH_DAYS < at < day - 1]
        return len(set().union(*days))

    def is_worth(self, device: str, rules: Rules) -> bool:
        """Whether a device may have enough to be reported."""
        failed = sum(not each.success for each in self.logins[device])
        return len(self.users(device)) >= rules.least_accounts or failed >= rules.least_failed


def _columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: rows[name] for name in _SCHEMA.names}


def _day_columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The day instead of the moment, and for how long it counts."""
    days_us = pc.multiply(pc.divide(rows["time_us"], DAY_US), DAY_US)
    return {"time_us": days_us, UNTIL: pc.add(days_us, MONTH_US + 2 * DAY_US)}


def _seen_columns(rows: pa.Table, kind: int) -> dict[str, pa.ChunkedArray]:
    """Rows that say of successful logins on which day they were, and no more."""
    nothing = {
        name: pa.nulls(rows.num_rows, _SCHEMA.field(name).type)
        for name in ("event_id", "partition", "offset")
    }
    return {**_columns(rows), **nothing, **_day_columns(rows), "kind": _repeated(kind, rows.num_rows)}


def _repeated(kind: int, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(kind, pa.uint8()), times)


def _fresh(bucket: Bucket, seen: pa.Table) -> pa.Table:
    """Each pair of a day once, always the same row of several, unless the state holds it already."""
    if not seen.num_rows:
        return seen
    names = (KEY, "kind", "mark", "time_us")
    held = bucket.state.rows_of(pc.unique(seen[KEY]), names)
    held = held.filter(
        pc.and_(
            pc.greater(held["kind"], _LOGIN), pc.is_in(held["time_us"], value_set=pc.unique(seen["time_us"]))
        )
    )
    rows = [*range(seen.num_rows), *[_HELD] * held.num_rows]
    both = pa.concat_tables([seen.select(names), held]).append_column("row", pa.array(rows, pa.int64()))
    first = both.group_by(list(names)).aggregate([("row", "min")])["row_min"]
    return seen.take(first.filter(pc.not_equal(first, _HELD)))
