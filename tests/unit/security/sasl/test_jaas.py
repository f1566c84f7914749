from __future__ import annotations

import pytest

from tidelog.security.sasl.jaas import JaasError, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_line_as_in_kafkas_files() -> None:
    line = parse_jaas(f'{MODULE} required username="admin" password="s e;cret" user_alice="a=b";')
    assert line.module == MODULE
    assert line.flag == "required"
    assert line.options == {"username": "admin", "password": "s e;cret", "user_alice": "a=b"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"plain"', "plain"),
        ("'single \" quoted'", 'single " quoted'),
        (r'"say \"hi\" \\ \n"', 'say "hi" \\ \n'),
        (r'"\!\$"', "!$"),
        ("bare-word_1.0", "bare-word_1.0"),
        ('""', ""),
    ],
)
def test_quotes_follow_javas_rules(written: str, meant: str) -> None:
    assert parse_jaas(f"m required password={written};").options["password"] == meant


def test_lines_may_be_broken_and_commented() -> None:
    text = """
        m Required   // the flag in any case
          user_a = "1" /* many
          lines */ user_b="//2" ;
    """
    assert parse_jaas(text).options == {"user_a": "1", "user_b": "//2"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "lacks the name of a login module"),
        ("m", "lacks a flag"),
        ('m needed password="hush";', "must be one of required"),
        ('m required password="hush"', "lacks an option, or the semicolon"),
        ('m required password="hush', "quotes of option number 1 are not closed"),
        ("m required password=;", "option number 1 has no value"),
        ('m required password "hush";', "option number 1 has no value"),
        ('m required password="hu"sh";', "option number 2 has no value"),
        ('m required hush="1" hush="2";', "option number 2 has the name"),
        ('m required a="hush"; n required b="hush";', "more behind the semicolon"),
    ],
)
def test_what_cannot_be_read_is_named_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(JaasError, match=why) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)


def test_a_line_shows_no_value() -> None:
    assert "hush" not in repr(parse_jaas('m required password="hush";'))
