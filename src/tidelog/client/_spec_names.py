"""What other Python clients call the fields of the specs that go into an admin call.

``@also_called(num_partitions="partitions")`` lets a dataclass take another client's keyword for a field that
means the same; ``refused`` holds what to write instead of keywords that cannot be taken. Any other keyword is
refused with the field that was meant. Type checkers know our names alone.

Only for what is made a few times in a program: every instance pays for the look at its keywords.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from tidelog.options import suggest

T = TypeVar("T")


def also_called(refused: Mapping[str, str] | None = None, /, **synonyms: str) -> Callable[[type[T]], type[T]]:
    """Decorate a dataclass: its fields may be given by the names in ``synonyms`` too."""

    def decorate(spec: type[T]) -> type[T]:
        ours = [each.name for each in fields(spec) if each.init]  # type: ignore[arg-type]
        made: Callable[..., None] = spec.__init__

        @functools.wraps(made)
        def init(self: Any, *args: object, **keywords: object) -> None:
            given: dict[str, object] = {}
            for written, value in keywords.items():
                name = synonyms.get(written, written)
                if name not in ours:
                    raise TypeError(_refusal(spec.__name__, written, ours, refused or {}))
                if name in given or name in ours[: len(args)]:
                    raise TypeError(f"{spec.__name__} got {name} twice: {written} is the same")
                given[name] = value
            made(self, *args, **given)

        spec.__init__ = init  # type: ignore[method-assign]
        return spec

    return decorate


def _refusal(spec: str, written: str, ours: Sequence[str], refused: Mapping[str, str]) -> str:
    if written in refused:
        return f"{spec} has no {written}: {refused[written]}"
    near = suggest(written, [name.replace("_", ".") for name in ours])
    if near is not None:
        return f"{spec} has no {written}; did you mean {near.replace('.', '_')}?"
    return f"{spec} has no {written}; it takes {', '.join(ours)}"
