"""Regular expressions over topic names, against what Kafka's RE2/J says of them (``expressions.json``)."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.regex.topic_regex import MAX_PLACES, compile_regex
from tidelog.errors import ErrorCode, KafkaError

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


@pytest.mark.parametrize("regex", ["(?:(?:a{30}){30}){30}", f"{'(' * 5000}a{')' * 5000}", "((a?){1000}b){9}"])
def test_what_is_too_large_is_refused(regex: str) -> None:
    assert MAX_PLACES < 10_000
    with pytest.raises(KafkaError):
        compile_regex(regex)
