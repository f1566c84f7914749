"""``tidelog events score --adversaries``: precision and recall by pattern, and as a curve over thresholds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import counted, print_json, print_table, remark

_SEEDS = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_SEEDS = 1000


def show(seeds: str, rules: Path | None, require: float | None, *, json: bool) -> None:
    """Print how well rules find the adversaries of some seeds."""
    chosen = _parsed(seeds)
    try:
        from tidelog_rewards.adversary_report import score_adversaries
    except ModuleNotFoundError as error:
        raise Failure(
            f'the detectors need {error.name}, which is not installed: pip install "tidelog[spark]"'
        ) from error
    report = score_adversaries(chosen, rules)
    total = report.total(report.usual)
    curve = [report.total(each) for each in sorted({score.threshold for score in report.patterns})]
    if json:
        print_json(
            {
                "seeds": [chosen[0], chosen[-1]],
                "threshold": report.usual,
                "patterns": [_json(each) for each in report.patterns],
                "curve": [_json(each) for each in curve],
            }
        )
    else:
        rows = [
            (
                each.pattern,
                "fraud" if each.is_fraud else "honest",
                each.cases,
                each.accused,
                _share(each.recall),
                _share(each.precision),
            )
            for each in [*report.at(report.usual), total]
        ]
        columns = ("pattern", "kind", "cases", "accused", "recall", "precision")
        print_table(columns, rows, right=columns[2:])
        points = [(each.threshold, _share(each.recall), _share(each.precision)) for each in curve]
        print_table(("threshold", "recall", "precision"), points, right=("threshold", "recall", "precision"))
        remark(f"{counted(len(chosen), 'seed')}, reported from {report.usual} points on")
    for name, share in (("recall", total.recall), ("precision", total.precision)):
        if require is not None and (share is None or share < require):
            raise Failure(f"{name} is {_share(share)}, below --require {require}")


def _parsed(text: str) -> list[int]:
    found = _SEEDS.fullmatch(text)
    if found is None:
        raise WrongUsage(f"--adversaries {text!r} are no seeds: write 1000 or 1000-1009")
    first = int(found[1])
    last = int(found[2] or first)
    if not first <= last < first + _MOST_SEEDS:
        raise WrongUsage(f"--adversaries {text}: the last seed comes after the first, {_MOST_SEEDS} at most")
    return list(range(first, last + 1))


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _json(each: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(each)
    assert not isinstance(each, type)
    shares = {name: getattr(each, name) for name in ("recall", "precision")}
    return {**dataclasses.asdict(each), **shares}
