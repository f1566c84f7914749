from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.security.kerberos.auth_to_local import MAX_NAME, AuthToLocal, NoRuleAppliesError

REALM = "REALM.COM"
_APP = (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT")
_LOWER = (
    r"RULE:[1:$1]/L",
    r"RULE:[2:$1](Test.*)s/ABC///L",
    r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    r"RULE:[2:$1]/L",
)
_UPPER = (
    r"RULE:[1:$1]/U",
    r"RULE:[2:$1](Test.*)s/ABC///U",
    r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/U",
    r"RULE:[2:$1]/U",
)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (("DEFAULT",), f"alice@{REALM}", "alice"),
        (("DEFAULT",), f"kafka/host.example@{REALM}", "kafka"),
        (_APP, f"App.service-name/example.com@{REALM}", "service-name"),
        (_APP, f"App.service-name@{REALM}", "service-name"),
        (_APP, f"user/host@{REALM}", "user"),
        (_LOWER, f"User@{REALM}", "user"),
        (_LOWER, f"TestABC/host@{REALM}", "test"),
        (_LOWER, f"ABC_User_ABC/host@{REALM}", "xyz_user_xyz"),
        (_LOWER, f"App.SERVICE-name/example.com@{REALM}", "app.service-name"),
        (_UPPER, f"User@{REALM}", "USER"),
        (_UPPER, f"TestABC/host@{REALM}", "TEST"),
        (_UPPER, f"ABC_User_ABC/host@{REALM}", "XYZ_USER_XYZ"),
        # the realm, the instance and text of the rule's own
        (("RULE:[2:$2-$1-$0]",), "kafka/host@OTHER", "host-kafka-OTHER"),
        (("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//",), "eve@OTHER.COM", "eve"),
        # the first that applies decides
        (("RULE:[1:$1](x.*)s/x/y/", "RULE:[1:$1](.*)s/x/z/", "DEFAULT"), f"xx@{REALM}", "yx"),
        # once, or everywhere
        (("RULE:[1:$1]s/a/b/",), f"aaa@{REALM}", "baa"),
        (("RULE:[1:$1]s/a/b/g",), f"aaa@{REALM}", "bbb"),
        (("RULE:[1:$1]s/x*/-/g",), f"xabx@{REALM}", "--a-b--"),
        # Java's replacements
        (
            (r"RULE:[1:$1]s/(.)(.)(.*)/$2$1\$1${rest}/".replace("(.*)", "(?<rest>.*)"),),
            f"abc@{REALM}",
            "ba$1c",
        ),
        (("RULE:[1:$1]s/(.)(.*)/$12/",), f"abc@{REALM}", "a2"),
        # a slash more at the end, as Kafka's grammar has it
        (("RULE:[1:$1]s/a/b//",), f"a@{REALM}", "b"),
    ],
)
def test_principals_become_names_as_in_kafka(rules: tuple[str, ...], principal: str, name: str) -> None:
    assert AuthToLocal(rules, REALM).name_for(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        (("DEFAULT",), "alice@OTHER", "no rule applies to its principal alice@OTHER"),
        (("RULE:[1:$1](a.*)",), f"bob@{REALM}", "no rule applies"),
        (("RULE:[1:$1]",), f"alice/host@{REALM}", "no rule applies"),
        (("RULE:[3:$1]",), f"a/b/c@{REALM}", "is not primary/instance@REALM"),
        (("DEFAULT",), "alice", "is not primary/instance@REALM"),
        (("DEFAULT",), f"alice@OTHER@{REALM}", "is not primary/instance@REALM"),
        # nothing that looks like somebody else's name, whatever later rules say
        (("RULE:[1:$1@$0]", "DEFAULT"), f"alice@{REALM}", "/ and @ must not be"),
        (("RULE:[2:$1/$2]", "DEFAULT"), f"alice/host@{REALM}", "/ and @ must not be"),
        (("DEFAULT",), rf"alice\@{REALM}@{REALM}", "escaped"),
        (("DEFAULT",), rf"alice\/admin@{REALM}", "escaped"),
        (("DEFAULT",), f"alice\n@{REALM}", "unprintable"),
        (("DEFAULT",), f"alice\0@{REALM}", "unprintable"),
        (("DEFAULT",), f"@{REALM}", "leave no name"),
        (("RULE:[1:$1]s/.*//",), f"alice@{REALM}", "leave no name"),
        (("DEFAULT",), f"{'a' * MAX_NAME}@{REALM}", f"more than {MAX_NAME}"),
        ((), f"alice@{REALM}", "no rule applies"),
    ],
)
def test_who_is_known_by_no_name_is_refused(rules: tuple[str, ...], principal: str, why: str) -> None:
    with pytest.raises(NoRuleAppliesError, match=why):
        AuthToLocal(rules, REALM).name_for(principal)


def test_without_a_default_realm_the_default_rule_is_nobodys() -> None:
    with pytest.raises(NoRuleAppliesError):
        AuthToLocal(("DEFAULT",), "").name_for("alice@")


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "DEFAULT/L",
        "RULE:[:$1]",
        "RULE:[n:$1](a)",
        "RULE:[1:$1](a)s/b/c",
        "RULE:[1:$1](a)x/b/c/",
        "RULE:[1:$1]/g",
        "RULE:[1:$1]/l",
        "RULE:[1:$1]/LU",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$99999999999999]",
        "RULE:[1:$1](a(b)",
        "RULE:[1:$1]s/(a/b/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1]s/a/b\\/",
        "RULE:[1:$1]s/(?<x>a)/${y}/",
        "RULE:[1:$1]s/(a)\\1/b/",
    ],
)
def test_a_rule_that_cannot_be_read_stops_the_start_and_is_named(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.x has the rule"):
        AuthToLocal([rule], REALM, "listener.x")


def test_a_hostile_pattern_and_the_longest_name_are_done_with_in_bounded_time() -> None:
    rules = AuthToLocal(("RULE:[1:$1](.*.*.*.*.*.*x)", r"RULE:[1:$1]s/((a|a)+)+b/x/g"), REALM)
    name = "a" * (MAX_NAME - len(REALM) - 1)
    assert rules.name_for(f"{name}@{REALM}") == name
