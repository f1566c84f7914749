"""How much of each crash test is run: a sample by ``make test``, the whole by ``make chaos``.

A crash test repeats its blow, at another instant or in another way each time. A handful of them shows that
nothing is broken; that it holds at every instant takes many of them, and minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import TypeVar

WHOLE = os.environ.get("TIDELOG_CHAOS") == "whole"

A = TypeVar("A")
B = TypeVar("B")


def times(sample: int, whole: int) -> int:
    """How often something is done."""
    return whole if WHOLE else sample


def pairs(first: Iterable[A], second: Iterable[B]) -> list[tuple[A, B]]:
    """Each of the first with each of the second; of a sample, each of both at least once."""
    ones, others = list(first), list(second)
    if WHOLE:
        return list(product(ones, others))
    count = max(len(ones), len(others))
    return [(ones[number % len(ones)], others[number % len(others)]) for number in range(count)]
