"""The file of rules: thresholds, horizons, points and allow lists of the detecting pipelines, in TOML.

``rules.toml`` in this package is what holds unless a person names a file; that one says what differs, and its
``version``. Everything in it is checked when it is read: a name that nobody knows, a step that goes down or a
time below zero is refused with the place, and a pipeline that runs keeps what it has. Which rules an alert
was raised by is told in it: the version, which people choose, and a digest, which they cannot get wrong.

No Spark. The pipelines' ``schema`` modules say what their sections hold.
"""

from __future__ import annotations

import hashlib
import logging
import math
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from tidelog.errors import TidelogError

PACKAGED = Path(__file__).parent / "rules.toml"

Points = Annotated[int, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=86_400 * 30)]
Repeats = Annotated[int, msgspec.Meta(ge=2, le=1_000_000)]
"""How many make a rhythm: two at least, for it is in the pauses."""
Steps = tuple[tuple[Count, Points], ...]
"""Pairs of a count and the points from that count on, the lowest first; none: the rule is switched off."""
NEVER = 1 << 40
"""A count that nothing reaches."""

logger = logging.getLogger(__name__)


class RulesError(TidelogError):
    """A file of rules that cannot be used; the text names the file, the place and what is expected."""


class SectionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the sections of all pipelines have."""

    alert_score: Annotated[int, msgspec.Meta(ge=1, le=100)]
    """From so many points on a subject is reported."""
    lateness_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)]
    """So long after the newest event others may come and count: a day at most."""
    quiet_s: Annotated[int, msgspec.Meta(ge=3600, le=86_400 * 30)]
    """So long after its last evidence an incident is closed: no longer than it is remembered."""
    half_life_s: Annotated[int, msgspec.Meta(ge=0, le=86_400 * 365)] = 0
    """Of the evidence of thirty days, what is so old counts half; 0: all of it counts in full."""
    allow: dict[str, tuple[str, ...]] = {}
    """Names that are never reported, by the kind of subject."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, tuple) and value and isinstance(value[0], tuple):
                for (count, points), (next_count, next_points) in pairwise(value):
                    if next_count <= count or next_points < points:
                        raise ValueError(f"{name} must rise from step to step")

    def is_allowed(self, kind: str, name: str) -> bool:
        """Whether the file says that a subject is honest."""
        return name in self.allow.get(kind, ())


RulesT = TypeVar("RulesT", bound=SectionRules)


class Ruled(msgspec.Struct, Generic[RulesT], frozen=True):
    """The rules of one pipeline, and where they come from."""

    rules: RulesT
    version: str
    digest: str


class RulesName(msgspec.Struct, frozen=True):
    """Which rules an alert was raised by."""

    version: str
    digest: str


def load_rules(section: str, type_: type[RulesT], path: Path | None = None) -> Ruled[RulesT]:
    """The rules of a pipeline: those of the package, and over them what a file says.

    :raises RulesError: the file cannot be read, or something in it is wrong.
    """
    usual = tomllib.loads(PACKAGED.read_text())
    given = usual if path is None else _read(path)
    version = given.get("version")
    source = path or PACKAGED
    if not isinstance(version, str) or not version:
        raise RulesError(f'{source} has no version: begin it with a line such as version = "2026-11-17"')
    unknown = sorted(given.keys() - usual.keys())
    if unknown:
        raise RulesError(f"{source} has a section {unknown[0]!r} that no pipeline knows: remove or rename it")
    merged = _merged(usual[section], given.get(section, {}))
    try:
        rules = msgspec.convert(merged, type=type_)
    except msgspec.ValidationError as error:
        raise RulesError(f"{source}, section [{section}]: {error}") from None
    return Ruled(rules, version, digest_of(rules))


def digest_of(rules: SectionRules) -> str:
    """The same for the same rules, whatever file they are from; 12 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(rules, order="deterministic")).hexdigest()[:12]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"the rules in {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{path} is no TOML: {error}") from None


def _merged(usual: Mapping[str, Any], given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    merged = {**usual, **given}
    if isinstance(given.get("allow"), Mapping):
        merged["allow"] = {**usual["allow"], **given["allow"]}
        unknown = sorted(given["allow"].keys() - usual["allow"].keys())
        if unknown:
            raise RulesError(
                f"[allow] names {unknown[0]!r}, but there are the kinds {', '.join(usual['allow'])}"
            )
    return merged


class WatchedRules(Generic[RulesT]):
    """The rules of a pipeline that runs: a file that changes is taken, one that is broken is not."""

    def __init__(self, section: str, type_: type[RulesT], path: Path | None) -> None:
        self._section, self._type, self._path = section, type_, path
        self.current: Ruled[RulesT] = load_rules(section, type_, path)
        self._seen = self._stamp()

    def look(self) -> Ruled[RulesT]:
        """The rules as the file has them now, or the last good ones, with one line in the log."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self.current = load_rules(self._section, self._type, self._path)
            except RulesError as error:
                logger.error(
                    "%s goes on with the rules of version %s: %s",
                    *(self._section, self.current.version, error),
                )
            else:
                logger.info(
                    "%s takes the rules of version %s (%s)",
                    *(self._section, self.current.version, self.current.digest),
                )
        return self.current

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def least_of(*rules: Steps) -> int:
    """The least count from which any of some rules gives points; ``NEVER`` where all are switched off."""
    return min((steps[0][0] for steps in rules if steps), default=NEVER)


def faded_count(ages_us: Iterable[int], half_life_s: int) -> int:
    """How many pieces of evidence there are, to the next whole number, where each counts less the older it
    is; in any order."""
    if not half_life_s:
        return sum(1 for _ in ages_us)
    half_life_us = half_life_s * 1_000_000
    return int(math.fsum(0.5 ** (age_us / half_life_us) for age_us in ages_us) + 0.5)


def points_of(count: int, steps: Steps) -> int:
    """The points that a count gives; 0 where it gives none."""
    found = 0
    for least, points in steps:
        if count >= least:
            found = points
    return found
