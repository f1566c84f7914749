"""``python -m tests.mutation replication``: change one thing at a time and see whether a test fails.

The tests of a target are collected once and run once as they are, which shows which tests call which
function and how long they take. Then each mutant (``mutants``) has a process of its own, forked from the one
that has collected: it gives the function its changed code and runs the tests that call it, the quickest
first, until one fails. What no test notices is printed; ``explained.toml`` says of some of these why nothing
can.

This is a script of our own because cosmic-ray starts pytest anew for each mutant, which takes longer than the
tests, and because mutmut leaves out functions with decorators, such as properties.

The order is drawn from a seed, so a run that ``--minutes`` ends is a sample, and ``--match`` chooses modules.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest
from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
EXPLAINED = Path(__file__).with_name("explained.toml")
# A mutant may make an endless loop of anything: so many times what its tests have taken, and so much more.
_TIMES, _MORE_S = 8.0, 30.0

Place = tuple[str, int]
"""The file and the first line of a function's code."""


class Target(NamedTuple):
    """Code, and the tests that are to notice what is wrong with it."""

    packages: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "storage": Target(("tidelog.storage",), ("tests/unit/storage",)),
    "replication": Target(("tidelog.replication",), ("tests/unit/replication", "tests/unit/broker/cluster")),
    "controller": Target(("tidelog.controller",), ("tests/unit/controller", "tests/unit/broker/cluster")),
    "coordinator": Target(("tidelog.coordinator",), ("tests/unit/coordinator", "tests/contract")),
    "records": Target(("tidelog.records",), ("tests/unit/records",)),
    "detection": Target(("tidelog_rewards.detection", "tidelog_rewards.jobs"), ("tests/unit/rewards",)),
}


class Outcome(NamedTuple):
    """What became of a mutant: ``killed``, ``survived``, ``uncalled`` (no test calls the function)."""

    mutant: Mutant
    result: str


class _Running(NamedTuple):
    mutant: Mutant
    directory: Path
    """Of its temporary files."""
    limit_s: float


class Calls:
    """Which test calls which functions of the target."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)
        self.by_test: dict[str, set[Place]] = defaultdict(set)
        self._current: set[Place] = set()

    def begin(self, test: str) -> None:
        self._current = self.by_test[test]
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in self._files:
            self._current.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))


class Plugin:
    """Runs in pytest's process, in the place of its loop over tests."""

    def __init__(self, packages: Sequence[str], options: argparse.Namespace) -> None:
        self._packages = packages
        self._options = options
        self.outcomes: list[Outcome] = []
        self.is_broken = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        found = [module for package in self._packages for module in _modules(package)]
        modules = [each for each in found if self._options.match in each.__name__]
        functions = {place: function for each in modules for place, function in _functions(each)}
        calls, took_s = Calls({place[0] for place in functions}), dict[str, float]()
        for item in items:
            began_s = time.monotonic()
            calls.begin(item.nodeid)
            failed = _fails([item], shown=True)
            calls.end()
            took_s[item.nodeid] = time.monotonic() - began_s
            if failed:
                print(f"{item.nodeid} fails as it is")
                self.is_broken = True
                return True
        by_place: dict[Place, list[pytest.Item]] = defaultdict(list)
        for item in sorted(items, key=lambda each: took_s[each.nodeid]):
            for place in calls.by_test[item.nodeid]:
                by_place[place].append(item)
        mutants = [each for module in modules for each in mutants_of(Path(str(module.__file__)))]
        random.Random(self._options.seed).shuffle(mutants)
        print(f"{len(items)} tests, {len(mutants)} mutants", flush=True)
        self._run_all(mutants, functions, by_place, took_s)
        return True

    def _run_all(
        self,
        mutants: Sequence[Mutant],
        functions: dict[Place, FunctionType],
        by_place: dict[Place, list[pytest.Item]],
        took_s: dict[str, float],
    ) -> None:
        end_s = time.monotonic() + self._options.minutes * 60
        running: dict[int, _Running] = {}
        for mutant in mutants:
            if time.monotonic() > end_s:
                break
            place = (str(mutant.path), mutant.first_line)
            function, items = functions.get(place), by_place.get(place, [])
            if function is None or not _fits(function, mutant.code):
                continue
            if not items:
                self._note(Outcome(mutant, "uncalled"))
                continue
            while len(running) >= self._options.processes:
                self._reap(running)
            limit_s = time.monotonic() + _MORE_S + _TIMES * sum(took_s[each.nodeid] for each in items)
            directory = Path(tempfile.mkdtemp(prefix="mutant-"))
            pid = os.fork()
            if pid == 0:
                _be_mutant(function, mutant, items, directory)
            running[pid] = _Running(mutant, directory, limit_s)
        while running:
            self._reap(running)

    def _reap(self, running: dict[int, _Running]) -> None:
        """Wait until one has ended; one that takes too long is ended, and counts as killed."""
        while True:
            for pid, (mutant, directory, limit_s) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and time.monotonic() < limit_s:
                    continue
                if not ended:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                del running[pid]
                shutil.rmtree(directory, ignore_errors=True)
                survived = bool(ended) and os.waitstatus_to_exitcode(status) == 0
                self._note(Outcome(mutant, "survived" if survived else "killed"))
                return
            time.sleep(0.01)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.result != "killed":
            mutant = outcome.mutant
            place = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print(f"{outcome.result}: {place} {mutant.name}", flush=True)


def _modules(package: str) -> list[ModuleType]:
    root = importlib.import_module(package)
    directory = Path(str(root.__file__)).parent
    names = sorted(
        ".".join((package, *path.relative_to(directory).with_suffix("").parts))
        for path in directory.rglob("*.py")
    )
    found = [
        importlib.import_module(name.removesuffix(".__init__")) for name in names if "__main__" not in name
    ]
    return [each for each in found if str(each.__file__).endswith(".py")]


def _functions(module: ModuleType) -> Iterator[tuple[Place, FunctionType]]:
    """The functions that a module defines, with those in its classes, behind all decorators."""
    seen: set[int] = set()

    def inside(holder: Any) -> Iterator[tuple[Place, FunctionType]]:
        for value in list(vars(holder).values()):
            if inspect.isclass(value) and value.__module__ == module.__name__ and id(value) not in seen:
                seen.add(id(value))
                yield from inside(value)
            for function in _unwrapped(value):
                if function.__module__ == module.__name__:
                    yield (function.__code__.co_filename, function.__code__.co_firstlineno), function

    return inside(module)


def _unwrapped(value: Any) -> Iterator[FunctionType]:
    parts = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    for part in parts:
        function = inspect.unwrap(part) if callable(part) else None
        if isinstance(function, FunctionType):
            yield function


def _fits(function: FunctionType, code: CodeType) -> bool:
    """Whether the function may have that code: it must use the same names of the functions around it."""
    return function.__code__.co_freevars == code.co_freevars


def _fails(items: Sequence[pytest.Item], *, shown: bool = False) -> bool:
    """Whether one of these tests fails, which is printed if ``shown``; the others are not run then."""
    failed: list[bool] = []

    class Listening:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(True)
                if shown:
                    print(report.longreprtext)

    for at, item in enumerate(items):
        listening = Listening()
        item.config.pluginmanager.register(listening)
        following = items[at + 1] if at + 1 < len(items) else None
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            item.config.pluginmanager.unregister(listening)
        if failed:
            return True
    return False


def _be_mutant(function: FunctionType, mutant: Mutant, items: Sequence[pytest.Item], directory: Path) -> None:
    """Ends this process: with 0 if no test has noticed anything."""
    code = 1
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
        # It has a copy of the standard output, where what mutants do is no news.
        items[0].config.pluginmanager.unregister(name="terminalreporter")
        items[0].config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
        function.__code__ = mutant.code
        code = int(_fails(items))
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all, if none is named")
    parser.add_argument("--minutes", type=float, default=60.0, help="for each target")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--match", default="", help="a part of the names of the modules to change")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 below this score in percent")
    options = parser.parse_args(arguments)
    explained = tomllib.loads(EXPLAINED.read_text("utf-8"))
    worst = 100.0
    for name in options.targets or TARGETS:
        score = _score(name, options, explained)
        if score is None:
            return 1
        worst = min(worst, score)
    return int(worst < options.least)


def _score(name: str, options: argparse.Namespace, explained: dict[str, str]) -> float | None:
    target = TARGETS[name]
    plugin = Plugin(target.packages, options)
    chosen = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not spark"]
    code = pytest.main([*chosen, *(str(ROOT / each) for each in target.tests)], plugins=[plugin])
    if plugin.is_broken or code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    counts: Counter[str] = Counter()
    for mutant, result in plugin.outcomes:
        counts["explained" if result != "killed" and mutant.name in explained else result] += 1
    alive = counts["survived"] + counts["uncalled"]
    score = 100.0 * counts["killed"] / max(counts["killed"] + alive, 1)
    print(json.dumps({"target": name, "score": round(score, 1), **counts}), flush=True)
    return score


if __name__ == "__main__":
    sys.exit(main())
