from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.regex.linear_regex import (
    MAX_DEPTH,
    MAX_INSTRUCTIONS,
    LinearRegex,
    RegexFault,
    Steps,
    TooManyStepsError,
)

_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\.", r"\w", r"\d", r"\b", "^", "$", "[a-c.]", "@"])


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(
        parts, st.sampled_from(["", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}"])
    )
    sequence = st.lists(repeated, max_size=3).map(lambda each: "".join(a + b for a, b in each))
    around = ["(?=", "(?!", "(?<=", "(?<!"]
    group = st.tuples(st.sampled_from(["(", "(", "(?:", "(?i:", *around]), sequence).map(
        lambda each: f"{each[0]}{each[1]})"
    )
    return st.one_of(group, st.tuples(sequence, sequence).map(lambda each: f"({each[0]}|{each[1]})"))


_PATTERNS = st.recursive(_ATOMS, _joined, max_leaves=6)


@settings(max_examples=200)
@given(st.lists(_PATTERNS, max_size=3).map("".join), st.text("abA.@1", max_size=8))
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
    ahead = LinearRegex(f"(?={pattern}$).*".replace("(a", "(?:a").replace("(.", "(?:."))
    assert ahead.fullmatch("a" * 200) is None
    assert ahead.fullmatch("a" * 200 + "b") is not None


def test_to_replace_everywhere_takes_no_more_steps_than_it_may() -> None:
    regex, text, steps = LinearRegex("(.*!)?"), "a" * 2000, Steps(50_000)
    for place in range(20):
        assert regex.search(text, place, Steps(50_000)) is not None
    with pytest.raises(TooManyStepsError):
        [regex.search(text, place, steps) for place in range(len(text))]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("(?i)cn=[a-c]+", "CN=AbC", True),
        ("a(?i:b)c", "aBc", True),
        ("a(?i:b)c", "aBC", False),
        ("(?i)a(?-i)b", "AB", False),
        ("(?i)[^a]", "A", False),
        ("(?i)\u00e4", "\u00c4", False),
        ("(?!CN=admin).*", "CN=admin", False),
        ("(?!CN=admin).*", "CN=other", True),
        (".*(?<!x)", "abx", False),
        ("(?=.*OU=a)(?!.*O=b).*", "CN=c,OU=a", True),
        ("(?=.*OU=a)(?!.*O=b).*", "CN=c,OU=a,O=b", False),
        ("a(?=b(?!c)).*", "abc", False),
        ("a(?=b(?!c)).*", "abd", True),
        (r"\p{Alpha}\p{L}[\p{Digit}.]\P{Punct}", "a\u00e41x", True),
        (r"\p{Alpha}", "\u00e4", False),
    ],
)
def test_names_are_matched_as_java_does(pattern: str, text: str, matches: bool) -> None:
    assert (LinearRegex(pattern).fullmatch(text) is not None) == matches


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
        ("(?s)a", r"of which only \(\?:"),
        ("(?>a)", r"of which only \(\?:"),
        ("(?<=a|b+)c", "looks behind by no known length"),
        ("(?=(a))a", "captures within one that looks around"),
        (r"(a)\1", r"\\1, which is not known"),
        (r"\p{Greek}", r"\\p{Greek}, which is not known"),
        (r"(?i)\p{Lower}", r"\\p{Lower}, which is not known"),
        ("(?=a{40})" * 20, f"more than {MAX_INSTRUCTIONS} steps"),
        ("(" * 60 + "a" + ")" * 60, f"more than {MAX_DEPTH} deep"),
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
