"""Which runs reach docs/contributing/benchmarks.md: at least three full rounds on a quiet machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import __main__ as program
from benchmarks import quiet, report
from benchmarks.figures import OLD_PEER, OURS, PEER, Figure
from benchmarks.page import Results, Run
from benchmarks.registry import BENCHMARKS, Benchmark


def module(name: str) -> ModuleType:
    made = ModuleType(name, f"What {name} measures.")
    made.NAME = name  # type: ignore[attr-defined]
    return made


REGISTRY = {name: Benchmark(module(name)) for name in ("cost", "disk")}


def run_of(*ours: float, commit: str = "abc", date: str = "2026-11-16 10:00 UTC", **changes: object) -> Run:
    figure = Figure("cost", "CPU per request", "µs", "lower", {OURS: list(ours), PEER: [100.0] * len(ours)})
    run = Run({"date": date, "commit": commit}, len(ours), False, False, 0.01, 60.0, [figure])
    return replace(run, **changes)  # type: ignore[arg-type]


def page_of(tmp_path: Path, **runs: Run) -> tuple[str, list[str]]:
    results = Results(tmp_path / "results.json")
    for name, run in runs.items():
        results.add(name, run)
    page = tmp_path / "page.md"
    missing = results.write_page(REGISTRY, page)
    return page.read_text(), missing


def test_a_full_run_of_three_rounds_reaches_the_page_with_its_spread_date_and_rounds(tmp_path: Path) -> None:
    text, missing = page_of(tmp_path, cost=run_of(20, 10, 40))
    assert "| CPU per request | 20 (10…40) | 100 (100…100) | µs | 5.00× |" in text
    assert "date: 2026-11-16 10:00 UTC" in text
    assert "rounds: 3 of" in text
    assert missing == ["disk: not run yet"]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (run_of(1, 2, 3, quick=True), "quick"),
        (run_of(1, 2, 3, loaded=True), "not quiet"),
        (run_of(1, 2), "2 of 3 rounds"),
    ],
)
def test_other_runs_do_not_reach_the_page(tmp_path: Path, run: Run, reason: str) -> None:
    text, missing = page_of(tmp_path, cost=run)
    assert "CPU per request" not in text
    assert reason in missing[0]


def test_a_section_that_was_not_run_again_stays_as_it_stands_with_its_date(tmp_path: Path) -> None:
    before, _ = page_of(tmp_path, cost=run_of(1, 2, 3, date="2026-11-01 10:00 UTC"), disk=run_of(4, 5, 6))
    (tmp_path / "results.json").unlink()  # as on another machine
    after, missing = page_of(tmp_path, disk=run_of(7, 8, 9))
    assert before.split("## ")[1] == after.split("## ")[1]
    assert "2026-11-01 10:00 UTC" in after
    assert "| 8 (7…9) |" in after
    assert missing == []


def test_a_section_of_a_quick_run_does_not_stay(tmp_path: Path) -> None:
    void = "# Benchmarks\n\n## Cost\n\n| a |\n\n<sub>date: d; rounds: 3, quick mode</sub>\n"
    (tmp_path / "page.md").write_text(void)
    text, missing = page_of(tmp_path)
    assert "## Cost" not in text
    assert "cost: not run yet" in missing


def test_rounds_of_one_commit_add_up_and_those_of_another_begin_anew(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")
    results.add("cost", run_of(1, 2))
    results.add("cost", run_of(3, date="2026-11-16 12:00 UTC"), extend=True)
    again = Results(tmp_path / "results.json")["cost"]
    assert again.rounds == 3
    assert again.figures[0].values[OURS] == [1, 2, 3]
    assert again.conditions["date"] == "2026-11-16 12:00 UTC"
    results.add("cost", run_of(9, commit="def"), extend=True)
    assert results["cost"].figures[0].values[OURS] == [9]


def test_rounds_that_are_added_to_a_quick_run_do_not_make_it_a_full_one(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")
    results.add("cost", run_of(1, quick=True))
    results.add("cost", run_of(2, 3, 4), extend=True)
    assert results["cost"].hindrance == "a quick run"


@pytest.mark.parametrize("option", ["--quick", "--loaded", "--only=tidelog"])
@pytest.mark.parametrize("wish", ["--report", "--report-only"])
def test_the_page_is_refused_to_other_than_full_runs(
    option: str, wish: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.parse([option, wish])
    assert "full rounds" in capsys.readouterr().err


def test_only_a_full_run_of_everything_writes_the_page_unasked() -> None:
    assert program.parse([]).reports
    assert not program.parse(["cost"]).reports
    assert not program.parse(["--quick"]).reports
    assert not program.parse(["--loaded"]).reports
    assert program.parse(["cost", "--report"]).reports


def test_figures_for_the_page_are_kept_apart_from_others() -> None:
    assert program.parse(["cost"]).json != program.parse(["cost", "--quick"]).json


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "busy_share", lambda: 0.5)
    with pytest.raises(quiet.NotQuietError, match="50% of this machine"):
        quiet.wait_until_quiet(0)
    monkeypatch.setattr(quiet, "busy_share", lambda: 0.01)
    assert quiet.wait_until_quiet(0) == 0.01


def test_others_share_is_what_was_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[0] * 8, [10, 0, 5, 80, 0, 0, 0, 5]])
    monkeypatch.setattr(quiet, "_counters", lambda: next(readings))
    assert quiet.busy_share(0) == pytest.approx(0.2)


def test_stolen_time_is_counted_while_it_works_and_keeps_figures_off_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([[0] * 8, [60, 0, 5, 0, 0, 0, 0, 35]])
    monkeypatch.setattr(quiet, "_counters", lambda: next(readings))
    stolen = quiet.StolenTime().share
    assert stolen == pytest.approx(0.35)
    run = Run({}, 3, False, False, 0.0, 60.0, [], stolen)
    assert run.hindrance == "the host gave 35% of the machine to others meanwhile"
    assert "host up to 35%" in run.described()["other load"]
    assert not Run({}, 3, False, False, 0.0, 60.0, [], 0.02).hindrance


def test_two_peers_are_each_compared_with_ours() -> None:
    figure = Figure("x", "rate", "1/s", "higher", {PEER: [10], OURS: [40], OLD_PEER: [20]})
    titles, rows = report.table([figure])
    assert titles == [
        "measure", "Tidelog", "Apache Kafka 4.3", "Apache Kafka 3.9", "unit",
        "better than 4.3 by", "better than 3.9 by",
    ]  # fmt: skip
    assert rows == [["rate", "40", "10", "20", "1/s", "4.00×", "2.00×"]]


def test_every_benchmark_says_what_it_measures_and_has_a_title_of_its_own() -> None:
    titles = [benchmark.module.NAME for benchmark in BENCHMARKS.values()]
    assert len(set(titles)) == len(titles)
    for benchmark in BENCHMARKS.values():
        assert benchmark.module.__doc__
        assert OURS in benchmark.contestants
