"""By what a micro-batch is judged: rules, people's verdicts and the watermark, settled at its beginning and
written down.

    <checkpoint>/keyed/terms/<batch>.json

A batch that comes again after a crash must report the same, whatever file or topic has changed meanwhile: so
what was taken is written before any task runs, and taken again with it. Of old files the last few stay. The
last one also says from where the next batch goes on: its watermark is no earlier, though its rules may allow
more lateness, for what earlier hours were judged by is forgotten; and incidents that were silenced since, or
are no longer, are told again.

Called on the driver by ``alert_job``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.spark.runtime.private_directory import make_private
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.detection.alert_state import WAY_OUT, StateError, write_whole
from tidelog_rewards.detection.alert_tasks import Detector
from tidelog_rewards.detection.detection_rules import RulesName, SectionRules, WatchedRules
from tidelog_rewards.detection.incidents import Terms, incident_id
from tidelog_rewards.detection.verdicts import NEVER_US, Verdicts, read_verdicts
from tidelog_rewards.settings import RewardsSettings

RulesT = TypeVar("RulesT", bound=SectionRules)
_KEPT = 8


class RuledDetector(Detector, Protocol[RulesT]):
    """A detector whose rules can be exchanged."""

    @property
    def rules(self) -> RulesT: ...

    def ruled(self, rules: RulesT) -> Detector:
        """The same with other rules."""


class Settled(msgspec.Struct, frozen=True):
    """What was settled for a batch."""

    version: str
    digest: str
    given: msgspec.Raw
    """The rules as JSON."""
    verdicts: Verdicts
    watermark_us: int
    """What happened before this is late."""
    changed: frozenset[str]
    """The ids of incidents on which people, or the rules' allow lists, say something else than before."""

    def after(self, before: Settled | None, pipeline: str) -> Settled:
        """The same for the batch that follows another one."""
        least_us, silenced = self.watermark_us, self._silenced(pipeline)
        if before is not None:
            least_us, silenced = before.watermark_us, silenced ^ before._silenced(pipeline)
        return msgspec.structs.replace(
            self,
            watermark_us=max(self.watermark_us, least_us),
            changed=frozenset(each.incident_id for each in silenced),
        )

    def _silenced(self, pipeline: str) -> set[_Silenced]:
        listed = msgspec.json.decode(self.given, type=_Lists).allow
        return {
            *(_Silenced(name, "dismissed", until_us) for name, until_us in self.verdicts.dismissed.items()),
            *(_Silenced(incident_id(*each), "allowed") for each in self.verdicts.allowed),
            *(
                _Silenced(incident_id(pipeline, kind, subject), "listed")
                for kind, subjects in listed.items()
                for subject in subjects
            ),
        }


class _Silenced(NamedTuple):
    """An incident that is not told as open, and why: two reasons may hold at a time."""

    incident_id: str
    why: str
    until_us: int = NEVER_US


class _Lists(msgspec.Struct, frozen=True):
    """What is the same in the rules of all pipelines."""

    allow: dict[str, tuple[str, ...]] = {}


class SettledTerms(Generic[RulesT]):
    """What was settled for a batch, with its rules."""

    def __init__(self, settled: Settled, rules: RulesT) -> None:
        self._settled = settled
        self.rules = rules
        self.watermark_us = settled.watermark_us

    def told(self, detector: Detector, watermark_us: int) -> Terms:
        """As incidents are told by it."""
        name = RulesName(self._settled.version, self._settled.digest)
        return Terms(
            detector.name,
            name,
            detector.quiet_us,
            watermark_us,
            self._settled.verdicts,
            {kind: list(names) for kind, names in detector.allow.items()},
            self._settled.changed,
        )


class BatchTerms(Generic[RulesT]):
    """Settles the terms of batches."""

    def __init__(self, settings: PipelineSettings, detector: RuledDetector[RulesT], state: Path) -> None:
        self._type: type[RulesT] = type(detector.rules)
        self._rules = WatchedRules(detector.name, self._type, settings.extension(RewardsSettings).rules)
        self._settings, self._detector = settings, detector
        self._directory = state / "terms"

    def of(self, batch_id: int, newest_us: int = 0) -> SettledTerms[RulesT]:
        """The terms of a batch; those of an earlier attempt, if there was one.

        ``newest_us`` is the time of the newest event before it.
        """
        path = self._directory / f"{batch_id:012d}.json"
        if path.exists():
            settled = _read(path)
        else:
            settled = self._settle(newest_us).after(self._before(batch_id), self._detector.name)
            make_private(self._directory)
            write_whole(path, msgspec.json.encode(settled))
            self._forget(batch_id)
        with _naming(path):
            return SettledTerms(settled, msgspec.json.decode(settled.given, type=self._type))

    def _settle(self, newest_us: int) -> Settled:
        ruled = self._rules.look()
        return Settled(
            ruled.version,
            ruled.digest,
            msgspec.Raw(msgspec.json.encode(ruled.rules)),
            read_verdicts(self._settings, self._detector.name),
            newest_us - self._detector.ruled(ruled.rules).watermark_delay_us,
            frozenset(),
        )

    def _before(self, batch_id: int) -> Settled | None:
        """What was settled for the last batch before this one, if there was one."""
        paths = [path for path in self._directory.glob("*.json") if int(path.stem) < batch_id]
        return _read(max(paths)) if paths else None

    def _forget(self, batch_id: int) -> None:
        for path in self._directory.iterdir():
            if path.stem.isdecimal() and int(path.stem) <= batch_id - _KEPT:
                path.unlink(missing_ok=True)


def _read(path: Path) -> Settled:
    with _naming(path):
        settled = msgspec.json.decode(path.read_bytes(), type=Settled)
        # Here, where the file is known, and not when the next batch compares its lists.
        msgspec.json.decode(settled.given, type=_Lists)
        return settled


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What cannot be read is damaged, or of another version: there is no judging the batch again."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise StateError(f"{path} cannot be read ({error}): {WAY_OUT}") from error
