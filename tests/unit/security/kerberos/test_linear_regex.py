from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.security.kerberos.linear_regex import MAX_INSTRUCTIONS, LinearRegex, RegexFault

_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\.", r"\w", r"\d", r"\b", "^", "$", "[a-c.]", "@"])


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(
        parts, st.sampled_from(["", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}"])
    )
    sequence = st.lists(repeated, max_size=3).map(lambda each: "".join(a + b for a, b in each))
    group = st.tuples(st.sampled_from(["(", "(?:"]), sequence).map(lambda each: f"{each[0]}{each[1]})")
    return st.one_of(group, st.tuples(sequence, sequence).map(lambda each: f"({each[0]}|{each[1]})"))


_PATTERNS = st.recursive(_ATOMS, _joined, max_leaves=6)


@settings(max_examples=200)
@given(st.lists(_PATTERNS, max_size=3).map("".join), st.text("ab.@1", max_size=8))
def test_what_it_takes_matches_and_captures_as_a_backtracking_matcher_does(pattern: str, text: str) -> None:
    try:
        ours, theirs = LinearRegex(pattern), re.compile(pattern, re.ASCII)
    except (RegexFault, re.error):
        return
    for found, expected in (
        (ours.fullmatch(text), theirs.fullmatch(text)),
        (ours.search(text), theirs.search(text)),
        (ours.search(text, 1), theirs.search(text, 1) if text else None),
    ):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert (found.start, found.end) == expected.span()
            assert found.groups == (expected[0], *expected.groups())


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)(.*)b"]
)
def test_patterns_that_stop_a_backtracking_matcher_are_matched_in_bounded_time(pattern: str) -> None:
    assert LinearRegex(pattern).fullmatch("a" * 200) is None
    assert LinearRegex(pattern).fullmatch("a" * 200 + "b") is not None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", r"\( without a \)"),
        ("a)", r"\) without a \("),
        ("[ab", "ends in the middle"),
        ("a\\", "ends in the middle"),
        ("*a", "nothing before it"),
        ("a{b}", "begins no repetition"),
        ("a{3,2}", "below its beginning"),
        ("[b-a]", "below its beginning"),
        ("a*+", "repeats a repetition"),
        ("a**", "repeats a repetition"),
        ("(a*)*", "may be empty"),
        ("(?=a)", r"only \(\?: and"),
        ("(?i)a", r"only \(\?: and"),
        ("(?<!a)b", r"only \(\?: and"),
        (r"(a)\1", r"\\1, which is not known"),
        (r"\p{L}", r"\\p, which is not known"),
        ("[a&&b]", "a set within a set"),
        ("[a[b]]", "a set within a set"),
        ("a{999999}", f"more than {MAX_INSTRUCTIONS} steps"),
        ("((a{40}){40}){40}", f"more than {MAX_INSTRUCTIONS} steps"),
        ("(?<x>a)(?<x>b)", "name"),
        (r"\xzz", "without the digits"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(pattern: str, why: str) -> None:
    with pytest.raises(RegexFault, match=why):
        LinearRegex(pattern)


def test_groups_have_names_and_characters_have_numbers() -> None:
    regex = LinearRegex(r"(?<user>[^@]+)\x40(\u0041.*)")
    found = regex.fullmatch("eve@ABC")
    assert found is not None
    assert found.groups == ("eve@ABC", "eve", "ABC")
    assert regex.group_names == {"user": 1}
