"""What a case is: a function that talks to one broker and gives back what it saw, run on both.

    @case(versions=range(3, 14))
    def unknown_partition(side: Side, version: int) -> object:
        return produce(side, side.topic(), batch(), version=version, partition=9)

A case is known by its module, its function and, in brackets, its parameter. ``differs`` takes the differences
that are meant, with their reason, which docs/deviations.md has to give as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.compat.side_by_side.side import Side

Talk = Callable[..., object]


@dataclass(frozen=True)
class Deviation:
    """A difference that is meant: why, and our value at each place where the answers differ."""

    reason: str
    ours: Mapping[str, object]


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


CASES: list[Case] = []


def case(
    parameters: Mapping[str, object] | Iterable[object] | None = None,
    *,
    versions: Iterable[int] | None = None,
    differs: Deviation | Mapping[object, Deviation] | None = None,
) -> Callable[[Talk], Talk]:
    """Enter a function in the table: once, for each version, or for each parameter (with a name, or as its own)."""

    def enter(talk: Talk) -> Talk:
        module = inspect.getmodule(talk)
        assert module is not None
        stem = f"{module.__name__.rpartition('.')[2]}.{talk.__name__.strip('_')}"
        for label, values in _combinations(parameters, versions):
            name = f"{stem}[{label}]" if label else stem
            known = differs
            if isinstance(known, Mapping):
                known = known.get(label)
            CASES.append(Case(name, talk, values, known))
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
