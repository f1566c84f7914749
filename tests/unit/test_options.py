from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.options import (
    BadValueError,
    ConfigDef,
    OptionType,
    at_least,
    between,
    between_or,
    distinct_items,
    double_to_text,
    one_of,
    option,
    parse_text,
    render_value,
)

# What Kafka 4.3's own ConfigDef answers, text by text.
ACCEPTED = [
    ("long", " 5 ", 5),
    ("long", "+5", 5),
    ("long", "-9223372036854775808", -(2**63)),
    ("int", "2147483647", 2**31 - 1),
    ("short", "-32768", -(2**15)),
    ("boolean", " TRUE ", True),
    ("boolean", "False", False),
    ("double", "0.5f", 0.5),
    ("double", "0x1p-2", 0.25),
    ("double", "1e3", 1000.0),
    ("double", ".5", 0.5),
    ("double", "-Infinity", float("-inf")),
    ("list", "", ()),
    ("list", "   ", ()),
    ("list", " delete , compact ", ("delete", "compact")),
    ("list", "compact,", ("compact", "")),
    ("string", "  GZIP ", "GZIP"),
    ("string", "null", "null"),
    ("class", " a.B ", "a.B"),
]

REFUSED = [
    ("long", "abc", "Not a number of type LONG"),
    ("long", "", "Not a number of type LONG"),
    ("long", "1_000", "Not a number of type LONG"),
    ("long", "1.5", "Not a number of type LONG"),
    ("long", "null", "Not a number of type LONG"),
    ("long", "9223372036854775808", "Not a number of type LONG"),
    ("int", "2147483648", "Not a number of type INT"),
    ("int", "1 2", "Not a number of type INT"),
    ("short", "40000", "Not a number of type SHORT"),
    ("boolean", "yes", "Expected value to be either true or false"),
    ("boolean", "", "Expected value to be either true or false"),
    ("double", "x", "Not a number of type DOUBLE"),
    ("double", "nan", "Not a number of type DOUBLE"),
    ("double", "1_0.0", "Not a number of type DOUBLE"),
]


@pytest.mark.parametrize(("kind", "text", "value"), ACCEPTED)
def test_text_is_read_as_kafka_reads_it(kind: str, text: str, value: object) -> None:
    assert parse_text("x", OptionType[kind.upper()], text) == value


@pytest.mark.parametrize(("kind", "text", "why"), REFUSED)
def test_bad_text_is_refused_in_kafkas_words(kind: str, text: str, why: str) -> None:
    with pytest.raises(BadValueError) as refusal:
        parse_text("x.y", OptionType[kind.upper()], text)
    assert str(refusal.value) == f"Invalid value {text} for configuration x.y: {why}"


def test_an_absent_value_is_none_for_every_type() -> None:
    assert [parse_text("x", kind, None) for kind in OptionType] == [None] * len(OptionType)


@pytest.mark.parametrize(
    ("check", "value", "why"),
    [
        (at_least(-1), -2, "Invalid value -2 for configuration x: Value must be at least -1"),
        (at_least(0), None, "Invalid value null for configuration x: Value must be non-null"),
        (between(0, 1), 1.1, "Invalid value 1.1 for configuration x: Value must be no more than 1"),
        (between(0, 1), -0.1, "Invalid value -0.1 for configuration x: Value must be at least 0"),
        (
            between_or(1, 9, -1),
            0,
            "Invalid value 0 for configuration x: Value must be between 1 and 9 or equal to -1",
        ),
        (one_of("a", "b"), "A", "Invalid value A for configuration x: String must be one of: a, b"),
        (one_of("a", "b"), None, "Invalid value null for configuration x: String must be one of: a, b"),
        (
            distinct_items(of=("a", "b")),
            ("a", "c"),
            "Invalid value c for configuration x: String must be one of: a, b",
        ),
        (distinct_items(), ("a", "a"), "Configuration 'x' values must not be duplicated."),
        (distinct_items(), ("a", ""), "Configuration 'x' values must not be empty."),
        (distinct_items(), None, "Configuration 'x' values must not be null."),
        (
            distinct_items(empty_ok=False),
            (),
            "Configuration 'x' must not be empty. Valid values include: any non-empty value",
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_kafkas_words(check: object, value: object, why: str) -> None:
    assert callable(check)
    with pytest.raises(BadValueError) as refusal:
        check("x", value)
    assert str(refusal.value) == why


def test_repeated_items_of_a_list_count_once() -> None:
    assert option("x", "list", (), "doc", distinct_items(of=("a", "b"))).parse("b,a,b") == ("b", "a")
    assert option("x", "list", (), "doc").parse("b,a,b") == ("b", "a", "b")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (at_least(-1), -1),
        (between(0, 1), 1.0),
        (between(0, 1), float("nan")),
        (between_or(1, 9, -1), -1),
        (between_or(1, 9, -1), 9),
        (one_of("a"), "a"),
        (distinct_items(), ()),
        (distinct_items(null_ok=True, empty_ok=False), None),
        (distinct_items(of=("a", "b")), ("b", "a")),
    ],
)
def test_a_value_on_the_bound_is_taken(check: object, value: object) -> None:
    assert callable(check)
    check("x", value)


TABLE = ConfigDef(
    [
        option("log.segment.bytes", "int", 100, "doc", at_least(14)),
        option("ratio", "double", 0.5, "doc", between(0, 1)),
        option("name", "string", None, "doc"),
        option("secret", "password", None, "doc"),
    ]
)


def test_parse_fills_in_defaults_and_passes_unknown_names_over() -> None:
    assert TABLE.parse({"ratio": "0.25", "else": "x"}) == {
        "log.segment.bytes": 100,
        "ratio": 0.25,
        "name": None,
        "secret": None,
    }


def test_every_bad_value_is_named_in_one_error_with_value_and_bounds() -> None:
    with pytest.raises(ConfigError) as refusal:
        TABLE.parse({"log.segment.bytes": "three", "ratio": "7", "name": "fine"})
    text = str(refusal.value)
    assert "Invalid value three for configuration log.segment.bytes" in text
    assert "at least 14" in text
    assert "Invalid value 7.0 for configuration ratio" in text
    assert "0 to 1" in text
    assert "name" not in text.replace("configuration", "")


def test_a_misspelt_name_gets_a_suggestion_and_a_strange_one_none() -> None:
    assert TABLE.suggest("log.segment.byte") == "log.segment.bytes"
    assert TABLE.suggest("LOG_SEGMENT_BYTES") == "log.segment.bytes"
    assert TABLE.suggest("completely.different") is None


def test_a_name_cannot_be_declared_twice() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        ConfigDef([option("a", "int", 1, ""), option("a", "int", 2, "")])


def test_only_passwords_are_sensitive() -> None:
    assert [name for name, each in TABLE.items() if each.sensitive] == ["secret"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.05, "0.05"),
        (0.001, "0.001"),
        (1e-5, "1.0E-5"),
        (1.5e-4, "1.5E-4"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-2.5e-10, "-2.5E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_print_as_java_prints_them(value: float, text: str) -> None:
    assert double_to_text(value) == text


def test_values_print_as_kafka_prints_them() -> None:
    assert [render_value(each) for each in (True, ("a", "b"), (), None, 5, "x")] == [
        "true",
        "a,b",
        "",
        None,
        "5",
        "x",
    ]


@given(st.floats(allow_nan=False))
def test_a_printed_double_reads_back_the_same(value: float) -> None:
    assert parse_text("x", OptionType.DOUBLE, double_to_text(value)) == value


_items = st.lists(
    st.text(st.characters(codec="ascii", exclude_characters=", \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"), min_size=1)
)


@given(_items)
def test_a_printed_list_reads_back_the_same(items: list[str]) -> None:
    assert parse_text("x", OptionType.LIST, render_value(tuple(items))) == tuple(items)
