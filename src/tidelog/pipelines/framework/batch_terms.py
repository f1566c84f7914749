"""By what a micro-batch is judged: rules and people's verdicts, settled at its beginning and written down.

    <checkpoint>/keyed/terms/<batch>.json

A batch that comes again after a crash must report the same, whatever file or topic has changed meanwhile: so
what was taken is written before any task runs, and taken again with it. Of old files the last few stay.

Called on the driver by ``alert_job``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tidelog.pipelines.framework.alert_state import write_whole
from tidelog.pipelines.framework.alert_tasks import Detector
from tidelog.pipelines.framework.detection_rules import RulesName, SectionRules, WatchedRules
from tidelog.pipelines.framework.incidents import Terms
from tidelog.pipelines.framework.verdicts import Verdicts, read_verdicts
from tidelog.pipelines.pipeline import PipelineSettings

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


class SettledTerms(Generic[RulesT]):
    """What was settled for a batch, with its rules."""

    def __init__(self, settled: Settled, rules: RulesT) -> None:
        self._settled = settled
        self.rules = rules

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
        )


class BatchTerms(Generic[RulesT]):
    """Settles the terms of batches."""

    def __init__(self, settings: PipelineSettings, detector: RuledDetector[RulesT], state: Path) -> None:
        self._type: type[RulesT] = type(detector.rules)
        self._rules = WatchedRules(detector.name, self._type, settings.rules)
        self._settings, self._name = settings, detector.name
        self._directory = state / "terms"

    def of(self, batch_id: int) -> SettledTerms[RulesT]:
        """The terms of a batch; those of an earlier attempt, if there was one."""
        path = self._directory / f"{batch_id:012d}.json"
        try:
            return self._with_rules(msgspec.json.decode(path.read_bytes(), type=Settled))
        except (FileNotFoundError, msgspec.ValidationError):
            # Or they are rules which an earlier release took, though no batch can be judged by them.
            settled = self._settle()
            self._directory.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(settled))
            self._forget(batch_id)
            return self._with_rules(settled)

    def _with_rules(self, settled: Settled) -> SettledTerms[RulesT]:
        return SettledTerms(settled, msgspec.json.decode(settled.given, type=self._type))

    def _settle(self) -> Settled:
        ruled = self._rules.look()
        given = msgspec.Raw(msgspec.json.encode(ruled.rules))
        return Settled(ruled.version, ruled.digest, given, read_verdicts(self._settings, self._name))

    def _forget(self, batch_id: int) -> None:
        for path in self._directory.iterdir():
            if path.stem.isdecimal() and int(path.stem) <= batch_id - _KEPT:
                path.unlink(missing_ok=True)
