"""What a case is: a function that talks to one broker and gives back what it saw, run on both.

    @case(versions=range(3, 14))
    def unknown_partition(side: Side, version: int) -> object:
        return produce(side, side.topic(), batch(), version=version, partition=9)

A case is known by its module, its function and, in brackets, its parameter; under that name deviations.py
may have a difference on record that is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.compat.side_by_side.compare import differences
from tests.compat.side_by_side.deviations import Deviation, deviation_of
from tests.compat.side_by_side.side import Side

Talk = Callable[..., object]


@dataclass(frozen=True)
class Case:
    """One exchange of requests and answers."""

    name: str
    talk: Talk
    parameters: tuple[object, ...]
    deviation: Deviation | None

    def run(self, side: Side) -> object:
        """What the broker shows."""
        with side:
            return self.talk(side, *self.parameters)

    def judge(self, ours: object, theirs: object) -> dict[str, tuple[object, object]]:
        """The differences that nobody has explained, or that there is none where one is on record."""
        found = differences(ours, theirs)
        if self.deviation is None:
            return found
        if not found:
            return {"(nothing differs any more)": (self.deviation.name, "")}
        return self.deviation.unexplained(found)


CASES: list[Case] = []


def case(
    parameters: Mapping[str, object] | Iterable[object] | None = None,
    *,
    versions: Iterable[int] | None = None,
) -> Callable[[Talk], Talk]:
    """Enter a function in the table: once, for each version, or for each parameter, named or not."""

    def enter(talk: Talk) -> Talk:
        module = inspect.getmodule(talk)
        assert module is not None
        stem = f"{module.__name__.rpartition('.')[2]}.{talk.__name__.strip('_')}"
        for label, values in _combinations(parameters, versions):
            name = f"{stem}[{label}]" if label else stem
            CASES.append(Case(name, talk, values, deviation_of(name)))
        return talk

    return enter


def _combinations(
    parameters: Mapping[str, object] | Iterable[object] | None, versions: Iterable[int] | None
) -> list[tuple[str, tuple[object, ...]]]:
    named: list[tuple[str, tuple[object, ...]]] = [("", ())]
    if isinstance(parameters, Mapping):
        named = [(label, (value,)) for label, value in parameters.items()]
    elif parameters is not None:
        named = [(str(value), (value,)) for value in parameters]
    if versions is None:
        return named
    return [
        (f"{label}-v{version}" if label else f"v{version}", (*values, version))
        for label, values in named
        for version in versions
    ]
