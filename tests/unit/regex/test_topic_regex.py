"""Regular expressions over topic names, against what Kafka's RE2/J says of them (``expressions.json``)."""

from __future__ import annotations

import contextlib
import json
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ErrorCode, KafkaError
from tidelog.regex.re2_syntax import MAX_DEPTH, MAX_LENGTH
from tidelog.regex.topic_regex import MAX_PLACES, Automata, TopicRegex, compile_regex

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "expressions.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("regex", "matched"), VECTORS["expressions"], ids=range(len(VECTORS["expressions"])))
def test_an_expression_is_refused_or_matches_as_in_kafka(regex: str, matched: str | None) -> None:
    if matched is None:
        with pytest.raises(KafkaError) as raised:
            compile_regex(regex)
        assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    else:
        compiled = compile_regex(regex)
        assert "".join("01"[compiled.matches(name)] for name in VECTORS["names"]) == matched


simple = st.recursive(
    st.sampled_from(["a", "b", "-", r"\.", ".", "[a-c]", "[^b]", r"\d", r"\w", "x1"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(simple, st.text("abcx1-.", max_size=12))
def test_it_agrees_with_pythons_re_where_both_mean_the_same(regex: str, name: str) -> None:
    assert compile_regex(regex).matches(name) == bool(re.fullmatch(regex, name))


@given(st.text("ab(|)*+?{}[]^$\\12,-.:<>=!PQEdpi", max_size=20))
def test_any_text_is_read_or_refused(regex: str) -> None:
    with contextlib.suppress(KafkaError):
        compile_regex(regex).matches("abab-1")


@pytest.mark.parametrize("regex", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*.*.*)*b", "(a|aa|aaa)+b"])
def test_what_takes_others_forever_does_not_here(regex: str) -> None:
    compiled = compile_regex(regex)
    assert not compiled.matches("a" * 249)
    assert compiled.matches("a" * 248 + "b")


def test_what_is_remembered_is_bounded() -> None:
    compiled = compile_regex("(?:[ab]*a)[ab]{12}")
    names = [f"{number:024b}".translate({48: "a", 49: "b"}) for number in range(0, 1 << 24, 4099)]
    assert [compiled.matches(name) for name in names] == [name[-13] == "a" for name in names]


def ab(length: int, seed: int = 0) -> str:
    """A name that leads an automaton to another set of places with every character."""
    return "".join(random.Random(seed).choices("ab", k=length))


def test_others_may_run_after_every_step_that_was_not_known() -> None:
    regex, name = TopicRegex("[ab]*a[ab]{60}", Automata(1 << 20)), ab(200)
    assert sum(1 for _ in regex.matching(name)) == len(name) + 1
    assert sum(1 for _ in regex.matching(name[:-1])) == 1, "whether it may end there was not known"
    assert sum(1 for _ in regex.matching(name)) == 0
    assert regex.matches(name) == (name[-61] == "a")


def test_all_automata_together_stay_within_their_room() -> None:
    room = 1 << 18
    automata = Automata(room)
    heavy = "|".join(["a[ab]{30}"] * 15)
    regexes = [TopicRegex(f"[ab]*(?:{heavy})c{{{number}}}", automata) for number in range(1, 5)]
    names = [ab(32, seed) for seed in range(2)]
    tracemalloc.start()
    try:
        for regex in regexes * 2:
            for name in names:
                assert not regex.matches(name)
            assert automata.held_bytes <= room
        assert tracemalloc.get_traced_memory()[0] < 2 * room
    finally:
        tracemalloc.stop()
    assert len(automata) < len(regexes)


@given(st.lists(st.tuples(simple, st.text("abcx1-.", max_size=12)), min_size=2, max_size=3))
def test_a_match_goes_on_when_its_automaton_was_forgotten_meanwhile(asked: list[tuple[str, str]]) -> None:
    automata = Automata(1)  # room for the one that was used last
    running = {
        number: TopicRegex(regex, automata).matching(name) for number, (regex, name) in enumerate(asked)
    }
    found: dict[int, bool] = {}
    while running:
        for number, work in list(running.items()):
            try:
                next(work)
            except StopIteration as end:
                found[number] = end.value
                del running[number]
    assert len(automata) == 1
    assert [found[number] for number in range(len(asked))] == [
        bool(re.fullmatch(regex, name)) for regex, name in asked
    ]


@pytest.mark.parametrize("regex", ["(?:|a|){3}", "a{0}b", "(?:a{1}){1,1}b?", "(?:)*a", "(?:){1000}a"])
@pytest.mark.parametrize("name", ["", "a", "b", "ab", "aaa", "aaaa"])
def test_what_matches_nothing_may_be_repeated(regex: str, name: str) -> None:
    assert compile_regex(regex).matches(name) == bool(re.fullmatch(regex, name))


@pytest.mark.parametrize(
    "regex",
    [
        "(?:(?:a{30}){30}){30}",
        f"{'(' * 5000}a{')' * 5000}",
        "((a?){1000}b){9}",
        f"(?:{'|' * 4000}){{1000}}",
        "(?:){1000}" * 400,
        "a" * 4001,
        "[" + r"\pL" * (MAX_LENGTH // 3) + "]",
        f"{'(' * (MAX_DEPTH + 1)}a{')' * (MAX_DEPTH + 1)}",
    ],
    ids=range(8),
)
def test_what_is_too_large_is_refused(regex: str) -> None:
    assert MAX_PLACES < 10_000
    with pytest.raises(KafkaError) as raised:
        compile_regex(regex)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_what_is_just_not_too_large_is_taken() -> None:
    names = [f"orders-{number:04d}" for number in range(340)]
    assert compile_regex("|".join(names)).matches(names[-1])
    assert compile_regex(f"{'(' * MAX_DEPTH}a{')' * MAX_DEPTH}").matches("a")
    assert compile_regex("[" + "a" * (MAX_LENGTH - 2) + "]").matches("a")
