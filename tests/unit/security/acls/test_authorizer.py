from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.acls.plain_model import PlainModel

from tidelog.security.acls import authorizer
from tidelog.security.acls.authorizer import Authorizer, Decision, Effect, Question
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.security.acls.rule_index import RuleIndex
from tidelog.security.principal import Principal, parse_principal

TOPIC = ResourceType.TOPIC
ALICE = Principal("alice")
HOST = "10.0.0.1"


def rule(
    name: str,
    operation: Operation = Operation.READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL),
        AclEntry(principal, host, operation, Permission.DENY if deny else Permission.ALLOW),
    )


def decide(
    *rules: AclBinding,
    name: str = "orders",
    operation: Operation = Operation.READ,
    principal: Principal = ALICE,
    host: str = HOST,
    open_without_rules: bool = False,
) -> Decision:
    engine = Authorizer(RuleIndex(rules), [Principal("root")], open_without_rules=open_without_rules)
    return engine.decide(Question(principal, host, operation), TOPIC, name)


def test_without_any_rule_the_option_decides() -> None:
    assert decide() == (False, authorizer.CLOSED_WITHOUT_RULES)
    assert decide(open_without_rules=True) == (True, authorizer.OPEN_WITHOUT_RULES)


def test_one_rule_for_somebody_else_closes_a_resource_that_was_open_to_everyone() -> None:
    others = rule("orders", principal="User:bob")
    assert decide(others, open_without_rules=True) == (False, authorizer.NOT_ALLOWED)
    assert decide(rule("ord", principal="User:bob", prefixed=True), open_without_rules=True).allowed is False
    assert decide(rule("*", principal="User:bob"), open_without_rules=True).allowed is False
    elsewhere = rule("orders", principal="User:bob", kind=ResourceType.GROUP)
    assert decide(elsewhere, open_without_rules=True).allowed is True


@pytest.mark.parametrize(
    "allowing",
    [
        rule("orders"),
        rule("*"),
        rule("ord", prefixed=True),
        rule("orders", prefixed=True),
        rule("orders", Operation.ALL),
        rule("orders", principal="User:*"),
        rule("orders", host=HOST),
    ],
    ids=str,
)
def test_a_rule_that_allows_decides_and_is_named(allowing: AclBinding) -> None:
    assert decide(allowing) == (True, allowing)


@pytest.mark.parametrize(
    "other",
    [
        rule("order"),
        rule("orders2"),
        rule("orders2", prefixed=True),
        rule("orders", Operation.WRITE),
        rule("orders", principal="User:bob"),
        rule("orders", principal="Group:alice"),
        rule("orders", host="10.0.0.2"),
        rule("orders", kind=ResourceType.GROUP),
    ],
    ids=str,
)
def test_a_rule_about_something_else_allows_nothing(other: AclBinding) -> None:
    assert decide(other).allowed is False


@pytest.mark.parametrize(
    "denying",
    [
        rule("orders", deny=True),
        rule("*", deny=True),
        rule("o", deny=True, prefixed=True),
        rule("orders", Operation.ALL, deny=True, principal="User:*", host=HOST),
    ],
    ids=str,
)
def test_denying_stands_over_allowing_however_close_that_is(denying: AclBinding) -> None:
    assert decide(rule("orders"), denying) == (False, denying)


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::0:7", "2001:db8::7"),
        ("2001:0db8:0000:0000:0000:0000:0000:0007", "2001:db8::7"),
        ("fe80:0:0:0:0:0:0:9%eth0", "fe80::9%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::1]", "::1"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(written: str, host: str) -> None:
    """Java leaves no zeros out: a rule made for Kafka must hold here, one that denies above all."""
    everyone = rule("orders", Operation.ALL, principal="User:*")
    assert not decide(everyone, rule("orders", host=written, deny=True), host=host).allowed
    assert decide(rule("orders", host=written), host=host).allowed


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("::2", "::1"),
        ("fe80::9%eth1", "fe80::9%eth0"),
        ("::10.0.0.1", "10.0.0.1"),
        ("10.0.0.01", "10.0.0.1"),
        (":", "::1"),
        ("not:an:address", "::1"),
        ("10.0.0.1.", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("**", "10.0.0.1"),
    ],
)
def test_another_address_is_another_one(written: str, host: str) -> None:
    assert not decide(rule("orders", host=written), host=host).allowed


@pytest.mark.parametrize(
    "name",
    [
        "ALICE",
        "alice ",
        " alice",
        "alice\0",
        "user:alice",
        "*",
        "User:*",
        "",
        "alice,bob",
        "ali%63e",
        "alicé",
    ],
)
def test_a_name_that_only_looks_like_one_of_a_rule_is_nobodys(name: str) -> None:
    assert not decide(rule("orders"), principal=Principal(name)).allowed


@pytest.mark.parametrize("name", ["*", "User:root", "root ", "ROOT"])
def test_no_name_makes_somebody_a_super_user_but_his_own(name: str) -> None:
    assert not decide(principal=Principal(name)).allowed
    assert not decide(principal=Principal("root", "Group")).allowed


@pytest.mark.parametrize("topic", ["Orders", "orders.", "orders ", "orders\0", "order", "*", "orders/"])
def test_a_resource_that_only_looks_like_one_of_a_rule_is_not_covered(topic: str) -> None:
    assert not decide(rule("orders"), name=topic).allowed


def test_a_super_user_is_bound_by_no_rule() -> None:
    denying = rule("orders", deny=True, principal="User:*")
    assert decide(denying, principal=Principal("root")) == (True, authorizer.SUPER_USER)
    assert decide(denying, principal=Principal("root", "Group")).allowed is False


@pytest.mark.parametrize("by", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_describe_is_implied_by_what_needs_it_and_never_denied_by_that(by: Operation) -> None:
    assert decide(rule("orders", by), operation=Operation.DESCRIBE).allowed is True
    both = decide(
        rule("orders", by, deny=True), rule("orders", Operation.DESCRIBE), operation=Operation.DESCRIBE
    )
    assert both.allowed is True


def test_altering_configs_implies_describing_them_and_nothing_else() -> None:
    alter = rule("orders", Operation.ALTER_CONFIGS)
    assert decide(alter, operation=Operation.DESCRIBE_CONFIGS).allowed is True
    assert decide(alter, operation=Operation.DESCRIBE).allowed is False
    assert decide(rule("orders", Operation.DESCRIBE), operation=Operation.READ).allowed is False


def test_the_closest_rule_is_the_one_that_is_named() -> None:
    rules = [rule("*"), rule("o", prefixed=True), rule("orde", prefixed=True), rule("orders")]
    assert decide(*rules).reason == rules[3]
    assert decide(*rules[:3]).reason == rules[2]
    assert decide(*rules[:2]).reason == rules[1]


def any_topic(*rules: AclBinding, open_without_rules: bool = False) -> bool:
    engine = Authorizer(RuleIndex(rules), [Principal("root")], open_without_rules=open_without_rules)
    return engine.decide_any(Question(ALICE, HOST, Operation.WRITE), TOPIC).allowed


def write(name: str, *, deny: bool = False, prefixed: bool = False) -> AclBinding:
    return rule(name, Operation.WRITE, deny=deny, prefixed=prefixed)


def test_any_resource_of_a_type_is_allowed_unless_a_wider_rule_denies_all_of_it() -> None:
    assert not any_topic()
    assert any_topic(write("orders"))
    assert any_topic(write("ord", prefixed=True))
    assert not any_topic(write("orders"), write("orders", deny=True))
    assert not any_topic(write("orders"), write("ord", deny=True, prefixed=True))
    assert not any_topic(write("orders", prefixed=True), write("ord", deny=True, prefixed=True))
    assert any_topic(write("ord", prefixed=True), write("orders", deny=True, prefixed=True))
    assert any_topic(write("ord", prefixed=True), write("ord", deny=True))
    assert any_topic(write("*"), write("ord", deny=True, prefixed=True))
    assert not any_topic(write("*"), write("*", deny=True))
    assert not any_topic(rule("orders", Operation.READ))


def test_an_open_cluster_lets_write_somewhere_unless_that_is_denied_everywhere() -> None:
    assert any_topic(open_without_rules=True)
    assert any_topic(write("ord", deny=True, prefixed=True), open_without_rules=True)
    assert not any_topic(write("*", deny=True), open_without_rules=True)


# Against the plain model

NAMES = ["*", "a", "ab", "abc", "b", "ba", "abcd"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [each for each in Operation if each > Operation.ANY]

bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    st.builds(
        AclEntry,
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS),
        st.sampled_from(OPERATIONS),
        st.sampled_from([Permission.ALLOW, Permission.DENY]),
    ),
)
questions = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:root", "Group:alice"]),
    st.sampled_from(HOSTS[1:]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from(KINDS),
    st.sampled_from([*NAMES[1:], "abx", "c"]),
)


@given(st.lists(bindings, max_size=12), st.booleans(), st.lists(questions, min_size=1, max_size=20))
def test_every_question_is_answered_as_the_plain_model_does(
    rules: list[AclBinding],
    open_without_rules: bool,
    asked: list[tuple[str, str, Operation, ResourceType, str]],
) -> None:
    model = PlainModel(rules, ["User:root"], open_without_rules=open_without_rules)
    engine = Authorizer(RuleIndex(rules), [Principal("root")], open_without_rules=open_without_rules)
    for who, host, operation, kind, name in asked:
        question = Question(parse_principal(who), host, operation)
        decision = engine.decide(question, kind, name)
        assert decision.allowed == model.allows(who, host, operation, kind, name)
        if isinstance(decision.reason, AclBinding):
            assert decision.reason in rules
            assert (decision.reason.entry.permission == Permission.ALLOW) == decision.allowed
        effects = {each.binding: each.effect for each in engine.weigh(question, kind, name)}
        if who != "User:root" and effects:
            denied = Effect.DENIES in effects.values()
            assert decision.allowed == (not denied and Effect.ALLOWS in effects.values())
            if isinstance(decision.reason, AclBinding):
                assert effects[decision.reason] is (Effect.ALLOWS if decision.allowed else Effect.DENIES)
        assert engine.decide_any(question, kind).allowed == model.allows_any(who, host, operation, kind)


@given(
    st.lists(bindings, max_size=12),
    st.lists(st.tuples(bindings, st.booleans()), max_size=12),
    questions,
)
def test_an_index_that_was_changed_answers_as_one_that_was_made_so(
    first: list[AclBinding],
    changes: list[tuple[AclBinding, bool]],
    asked: tuple[str, str, Operation, ResourceType, str],
) -> None:
    index = RuleIndex(first)
    kept = dict.fromkeys(first)
    for binding, add in changes:
        old = index.entries(binding.pattern)
        others = [each for each in old if each != binding.entry]
        index.put(binding.pattern, [*others, binding.entry] if add else others)
        kept.pop(binding, None)
        if add:
            kept[binding] = None
    assert set(index) == set(kept)
    assert len(index) == len(kept)
    who, host, operation, kind, name = asked
    question = Question(parse_principal(who), host, operation)
    changed, made = Authorizer(index), Authorizer(RuleIndex(kept))
    assert changed.decide(question, kind, name).allowed == made.decide(question, kind, name).allowed
    assert changed.decide_any(question, kind).allowed == made.decide_any(question, kind).allowed


def ask_many(seed: int, count: int) -> None:
    """Ask both the same things, with other rules after every few hundred."""
    draw = random.Random(seed)
    per_world = 400
    for _ in range(count // per_world):
        rules = [
            AclBinding(
                ResourcePattern(
                    draw.choice(KINDS),
                    draw.choice(NAMES),
                    draw.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                ),
                AclEntry(
                    draw.choice(PRINCIPALS),
                    draw.choice(HOSTS),
                    draw.choice(OPERATIONS),
                    draw.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
                ),
            )
            for _ in range(draw.randrange(10))
        ]
        open_without_rules = draw.random() < 0.5
        model = PlainModel(rules, ["User:root"], open_without_rules=open_without_rules)
        engine = Authorizer(RuleIndex(rules), [Principal("root")], open_without_rules=open_without_rules)
        for _ in range(per_world):
            principal = Principal(draw.choice(("alice", "bob", "root", "carol")))
            host = draw.choice(HOSTS[1:])
            operation = draw.choice(OPERATIONS[1:])
            kind = draw.choice(KINDS)
            name = draw.choice(NAMES)
            answer = engine.decide(Question(principal, host, operation), kind, name).allowed
            assert answer == model.allows(str(principal), host, operation, kind, name), (seed, rules)


def test_forty_thousand_random_questions_are_answered_as_the_plain_model_does() -> None:
    ask_many(seed=1, count=40_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_a_million_random_questions_are_answered_as_the_plain_model_does(seed: int) -> None:
    ask_many(seed=seed, count=250_000)


def test_a_decision_does_not_look_through_all_rules() -> None:
    rules = [
        rule(f"team-{n % 50}-topic-{n}", principal=f"User:u{n % 1000}", prefixed=n % 2 == 0)
        for n in range(20_000)
    ]
    rules += [rule("orders", principal=f"User:u{n}") for n in range(20_000)]
    index = RuleIndex(rules)
    covering = list(index.applying(TOPIC, "orders"))
    assert [rules.pattern.name for rules in covering] == ["orders"]
    assert covering[0].of("User:alice") == []
    assert list(index.naming("User:alice", TOPIC, PatternType.LITERAL)) == []
    assert len(list(index.naming("User:u7", TOPIC, PatternType.LITERAL))) == 21
