"""The invitations of one subject in one window → a scored alert, or none; plain Python without Spark.

A subject is an inviter, the device on which newcomers came in, or the block of their numbers. A device or
block with a single inviter is that inviter's matter, and is told there only. Addresses and bursts count per
inviter alone: a mobile carrier puts a whole town behind one address. A delivery that comes twice counts once,
and so does a person who is invited twice.

Called by ``transform`` in Spark's Python workers, with the subjects that have enough invitations to score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.pipelines.framework.alert_evidence import Window, alert_id, distinct_events, time_text
from tidelog.pipelines.jobs.invite_fraud.schema import NAME, RULES, SHOWN, Alert, Invite, Reason, Rules, Steps


class Subject(NamedTuple):
    """Whose invitations are counted."""

    kind: str
    """``inviter``, ``device`` or ``number-block``."""
    name: str


class Invitation(NamedTuple):
    """An invitation as it was delivered; the fields are those of the query's state."""

    time_us: int
    event_id: str
    partition: int
    offset: int
    inviter: str
    invitee: str
    device: str
    """The one on which the newcomer came in."""
    network: str
    block: str | None
    """None: the number is too short to have one."""

    @property
    def shown(self) -> Invite:
        """As an alert shows it."""
        time = time_text(self.time_us)
        return Invite(self.event_id, time, self.inviter, self.invitee, self.partition, self.offset)


def score(
    subject: Subject, window: Window, delivered: Iterable[Invitation], rules: Rules = RULES
) -> Alert | None:
    """The alert on a subject for the invitations of a window, if they are one."""
    invites = distinct_events(delivered)
    inviters = {invite.inviter for invite in invites}
    is_inviter = subject.kind == "inviter"
    if not is_inviter and len(inviters) == 1:
        return None
    people = _people(invites)
    reasons = list(_reasons(people, rules, is_inviter=is_inviter))
    total = min(100, sum(reason.points for reason in reasons))
    if total < rules.alert_score:
        return None
    return Alert(
        alert_id=alert_id(NAME, *subject, window=window),
        pipeline=NAME,
        subject_kind=subject.kind,
        subject=subject.name,
        window_start=time_text(window.start_us),
        window_end=time_text(window.end_us),
        score=total,
        reasons=reasons,
        inviters=sorted(inviters)[:SHOWN],
        invitees=sorted({invite.invitee for invite in invites})[:SHOWN],
        devices=sorted({invite.device for invite in invites})[:SHOWN],
        invitations=len(people),
        invites=[invite.shown for invite in invites[:SHOWN]],
    )


def _people(invites: Iterable[Invitation]) -> list[Invitation]:
    """The first invitation of each person; of two at the same moment always the same one."""
    first: dict[str, Invitation] = {}
    for invite in sorted(invites, key=_by_person):
        first.setdefault(invite.invitee, invite)
    return list(first.values())


def _by_person(invite: Invitation) -> tuple[str, int, str, str, str]:
    return invite.invitee, invite.time_us, invite.device, invite.network, invite.block or ""


def _reasons(people: Sequence[Invitation], rules: Rules, *, is_inviter: bool) -> Iterator[Reason]:
    counted = [
        ("device", _most(person.device for person in people), rules.device),
        ("number-block", _most(person.block for person in people), rules.number_block),
    ]
    if is_inviter:
        within = f"{round(rules.burst_window.total_seconds())} s"
        counted += [
            ("address", _most(person.network for person in people), rules.address),
            ("burst", (within, _burst(people, rules)), rules.burst),
        ]
    for rule, (value, count), steps in counted:
        points = _points(count, steps)
        if points is not None:
            yield Reason(rule, points, count, value)


def _most(values: Iterable[str | None]) -> tuple[str, int]:
    """The value that occurs most often, the smallest of several, and how often."""
    counts = Counter(value for value in values if value is not None)
    return min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))


def _burst(people: Sequence[Invitation], rules: Rules) -> int:
    """The count of the highest step that was reached within the burst window."""
    window_ms = round(rules.burst_window.total_seconds() * 1000)
    times_ms = sorted(person.time_us // 1000 for person in people)
    for count, _ in rules.burst:
        if any(
            last - first <= window_ms for first, last in zip(times_ms, times_ms[count - 1 :], strict=False)
        ):
            return count
    return 0


def _points(count: int, steps: Steps) -> int | None:
    """The points that a count gives, None when it gives none."""
    return next((points for least, points in steps if count >= least), None)
