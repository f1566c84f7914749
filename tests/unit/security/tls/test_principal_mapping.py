from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.security.tls.principal_mapping import NoRuleAppliesError, PrincipalMapping

NAME = "CN=Service1,OU=Streams,O=Example,C=CH"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", NAME, NAME),
        ("", NAME, NAME),
        ("RULE:^CN=(.*?),.*$/$1/", NAME, "Service1"),
        ("RULE:^CN=(.*?),.*$/$1/L", NAME, "service1"),
        ("RULE:^CN=(.*?),.*$/$1/U", NAME, "SERVICE1"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", NAME, "service1@streams"),
        ("RULE:^CN=(.*?),OU=Nobody.*$/$1/,DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?)$/$1/ , RULE:^OU=(.*)$/$1/U", "OU=a", "A"),
        # Other groups than there are stay as they are written.
        ("RULE:^CN=(.*?),.*$/$1-$2/", NAME, "Service1-$2"),
        ("RULE:^CN=(.*?),.*$/$12/", NAME, "Service12"),
        (r"RULE:^CN=(.*?),.*$/\$1/", NAME, "$1"),
        (r"RULE:^CN=(.*?)\/(.*)$/$2/", "CN=a/b", "b"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", NAME, "Service1"),
        # Every match is replaced, the empty one at the end too.
        ("RULE:(.*)/<$1>/", "CN=a", "<CN=a><>"),
        ("RULE:(CN|=|a)+/x/", "CN=a", "x"),
        ("RULE:^CN=(?=S)(.*?),.*$/$1/", NAME, "Service1"),
        ("RULE:^(?!.*OU=Streams).*$/x/,DEFAULT", NAME, NAME),
        ("RULE:^(?i)cn=([^,]{1,256}),.*(?<!DE)$/$1/L", NAME, "service1"),
        (r"RULE:^CN=(\p{Alnum}+),.*$/$1/", NAME, "Service1"),
        # Commas and equal signs of a name are escaped, and are none of the rule's.
        ("RULE:^CN=([^,]+),OU=admin$/$1/,DEFAULT", r"CN=mallory\,OU\=admin", r"CN=mallory\,OU\=admin"),
    ],
)
def test_the_first_rule_that_matches_names_a_client(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapping(rules).name_for(name) == expected


def test_no_name_keeps_a_rule_busy_for_ever() -> None:
    rules = "RULE:^CN=(([a-z]+)+),OU=x$/$1/,RULE:^CN=(a|aa)+$/b/,RULE:^CN=(.*),(.*),(.*),(.*),(.*)=z$/$1/"
    for name in ("CN=" + "a" * 60 + "!", "CN=" + "a," * 200):
        with pytest.raises(NoRuleAppliesError):
            PrincipalMapping(rules).name_for(name)


def test_no_name_keeps_a_rule_that_looks_around_busy_for_ever() -> None:
    """The CA that signs a name does not know the rules."""
    rules = "RULE:^(?=CN=(?:[a-z]+)+,OU=x$).*$/a/,RULE:^(?!.*O=y)CN=(([a-z]+)+),OU=x$/$1/"
    with pytest.raises(NoRuleAppliesError, match=r"^no rule of"):
        PrincipalMapping(rules).name_for("CN=" + "a" * 60 + "!")


def test_a_name_that_would_take_too_long_is_refused() -> None:
    mapping = PrincipalMapping("RULE:(.*!)?.*?/x/,DEFAULT")
    assert mapping.name_for("ab") == "xaxbx"
    with pytest.raises(NoRuleAppliesError, match="takes too long for a name of 20003 characters, CN=aaa"):
        mapping.name_for("CN=" + "a" * 20_000)


def test_no_rule_but_the_default_applies_to_a_name_with_line_ends() -> None:
    with pytest.raises(NoRuleAppliesError):
        PrincipalMapping("RULE:^CN=(.*)$/$1/").name_for("CN=a\nb")
    assert PrincipalMapping("RULE:^CN=(.*)$/$1/,DEFAULT").name_for("CN=a\nb") == "CN=a\nb"


def test_names_that_were_mapped_are_kept_up_to_a_number() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*)$/$1/")
    for number in range(1100):
        assert mapping.name_for(f"CN={number}") == mapping.name_for(f"CN={number}") == str(number)
    assert len(mapping._known) == 1000


def test_a_client_that_no_rule_names_is_refused() -> None:
    with pytest.raises(NoRuleAppliesError, match=f"applies to {NAME}"):
        PrincipalMapping("RULE:^CN=other$/x/").name_for(NAME)
    # A part of the name is not enough.
    with pytest.raises(NoRuleAppliesError):
        PrincipalMapping("RULE:CN=Service1/x/").name_for(NAME)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "DEFAULT,RULE:^CN=(.*)$",
        "RULE:^CN=(.*)$/$1/X",
        "RULE:(/x/",
        "RULE:(.*)/${who}/",
        "RULE:.*/$1/",
        "RULE:(.*)/a$b/",
        # Java knows these; Python would take them for something else, or for as long as a name says.
        r"RULE:^CN=(.*),OU=\1$/$1/",
        "RULE:^CN=([a-z&&[^x]]+)$/$1/",
        "RULE:^CN=((a*)*)$/$1/",
    ],
)
def test_rules_that_cannot_be_read_stop_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^listener\.name\.x\.ssl\.principal\.mapping\.rules has"):
        PrincipalMapping(rules, "listener.name.x.ssl.principal.mapping.rules")
