from __future__ import annotations

import base64
import hmac
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey, import_key

from tidelog.errors import ConfigError
from tidelog.security.principal import Principal
from tidelog.security.sasl.jwks import FetchTimes, JwksEndpoint, JwksFile, KeySet, key_source
from tidelog.security.sasl.jwt import ClaimRules, SignedTokens, TokenOwner, UnsecuredTokens
from tidelog.security.sasl.mechanism import Refused
from tidelog.security.sasl.oauthbearer import OAuthBearerMechanism

NOW_S = 1_000_000.0
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
RULES = ClaimRules()
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})


def public(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


class Keys:
    """The keys of a set, without any file."""

    def __init__(self, raw: bytes) -> None:
        self._set = KeySet.parse(raw)

    def key_for(self, key_id: str | None, algorithm: str) -> Any:
        key = self._set.find(key_id, algorithm)
        if key is None:
            raise Refused("no key")
        return key


def signed(key: Any, alg: str, claims: Mapping[str, Any] = CLAIMS, **header: Any) -> str:
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    return jws.serialize_compact(
        {"alg": alg, "kid": key.kid, **header}, json.dumps(claims), key, registry=registry
    )


def unsecured(claims: Mapping[str, Any] = CLAIMS, alg: str = "none", signature: str = "") -> str:
    parts = (json.dumps(each).encode() for each in ({"alg": alg}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), signature])


def validator(*keys: Any, rules: ClaimRules = RULES) -> SignedTokens:
    return SignedTokens(Keys(public(*keys)), rules, lambda: NOW_S)


@pytest.mark.parametrize(
    ("key", "alg"), [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256"), (ED, "Ed25519")]
)
def test_what_a_known_key_has_signed_is_believed(key: Any, alg: str) -> None:
    owner = validator(RSA, EC, ED).validate(signed(key, alg))
    assert owner == TokenOwner("alice", frozenset(), (NOW_S + 60) * 1000)


def test_a_key_need_not_be_named_where_there_is_only_one() -> None:
    token = jws.serialize_compact({"alg": "RS256"}, json.dumps(CLAIMS), RSA)
    assert validator(RSA, EC).validate(token).name == "alice"
    with pytest.raises(Refused):
        validator(RSA, RSAKey.generate_key(2048, {"kid": "second"})).validate(token)


def test_none_is_no_signature() -> None:
    for alg in ("none", "None", "NONE", "nOnE"):
        with pytest.raises(Refused):
            validator(RSA).validate(unsecured(alg=alg))
        with pytest.raises(Refused):
            validator(RSA).validate(unsecured(alg=alg, signature="AAAA"))


@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
def test_a_public_key_is_never_taken_for_a_secret(form: str) -> None:
    known: Mapping[str, bytes] = {
        "pem": RSA.as_pem(private=False),
        "der": RSA.as_der(private=False),
        "jwk": json.dumps(RSA.as_dict(private=False)).encode(),
    }
    unsigned = ".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode()
        for each in ({"alg": "HS256", "kid": "rsa"}, CLAIMS)
    )
    mac = hmac.digest(known[form], unsigned.encode(), "sha256")
    forged = f"{unsigned}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    with pytest.raises(Refused):
        validator(RSA).validate(forged)


def test_secrets_in_a_key_set_are_passed_over() -> None:
    secret = OctKey.generate_key(256, {"kid": "oct"})
    raw = json.dumps({"keys": [secret.as_dict(private=True)]}).encode()
    with pytest.raises(Refused):
        SignedTokens(Keys(raw), RULES, lambda: NOW_S).validate(signed(secret, "HS256"))


def test_keys_are_good_for_their_own_use_and_algorithm_alone() -> None:
    only_512 = {**RSA.as_dict(private=False), "alg": "RS512"}
    for_encryption = {**EC.as_dict(private=False), "use": "enc"}
    broken = {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}
    keys = Keys(json.dumps({"keys": [only_512, for_encryption, broken, 5]}).encode())
    tokens = SignedTokens(keys, RULES, lambda: NOW_S)
    assert tokens.validate(signed(RSA, "RS512")).name == "alice"
    for token in (signed(RSA, "RS256"), signed(EC, "ES256")):
        with pytest.raises(Refused):
            tokens.validate(token)


def test_foreign_and_changed_tokens_are_refused() -> None:
    header, payload, signature = signed(RSA, "RS256").split(".")
    other = unsecured({**CLAIMS, "sub": "admin"}).split(".")[1]
    for token in (
        signed(OTHER_RSA, "RS256"),
        f"{header}.{other}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{payload}.{signature[:-8]}",
        f".{payload}.{signature}",
        "",
        "..",
        "a.b.c",
        "a" * 300_000,
        base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".a.b",
    ):
        with pytest.raises(Refused):
            validator(RSA).validate(token)


def test_keys_and_addresses_within_a_token_are_not_looked_at() -> None:
    own = OTHER_RSA.as_dict(private=False)
    for header in ({"jwk": own}, {"jku": "http://localhost:1/"}):
        with pytest.raises(Refused):
            validator(RSA).validate(signed(OTHER_RSA, "RS256", **header))
    with pytest.raises(Refused, match="crit"):
        validator(RSA).validate(
            unsecured(alg="RS256", signature="AAAA").replace(
                unsecured(alg="RS256").split(".")[0],
                base64.urlsafe_b64encode(b'{"alg":"RS256","crit":["b64"],"b64":false}').rstrip(b"=").decode(),
            )
        )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exp": None}, "no end"),
        ({"exp": NOW_S - 31}, "has ended"),
        ({"exp": "1e9"}, "not a number"),
        ({"exp": True}, "not a number"),
        ({"exp": float("nan")}, "cannot be"),
        ({"exp": float("inf")}, "cannot be"),
        ({"exp": 10**400}, "cannot be"),
        ({"iat": None}, "no beginning"),
        ({"iat": NOW_S + 100}, "before it begins"),
        ({"nbf": NOW_S + 31}, "not good yet"),
        ({"iss": "other"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "kafka-2"}, "another audience"),
        ({"aud": ["x", 5]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"sub": None}, "has no subject"),
        ({"sub": " "}, "has no subject"),
        ({"sub": 5}, "has no subject"),
        ({"sub": "\ud800"}, "is not text"),
        ({"scp": "read"}, "lacks a scope"),
    ],
)
def test_tokens_must_say_what_is_asked_for(change: Mapping[str, Any], why: str) -> None:
    rules = ClaimRules(
        issuer="me",
        audiences=frozenset({"kafka", "all"}),
        required_scopes=frozenset({"write"}),
        scope_claim="scp",
    )
    claims = {**CLAIMS, "iss": "me", "aud": ["x", "kafka"], "scp": ["read", "write"]}
    assert validator(RSA, rules=rules).validate(signed(RSA, "RS256", claims)).scopes == {"read", "write"}
    changed = {name: value for name, value in {**claims, **change}.items() if value is not None}
    with pytest.raises(Refused, match=why):
        validator(RSA, rules=rules).validate(signed(RSA, "RS256", changed))


def test_clocks_may_differ_a_little() -> None:
    claims = {**CLAIMS, "exp": NOW_S - 29, "nbf": NOW_S + 29, "iat": NOW_S - 100}
    assert validator(RSA).validate(signed(RSA, "RS256", claims)).name == "alice"


def test_the_name_may_be_in_another_claim() -> None:
    rules = ClaimRules(subject_claim="preferred_username")
    claims = {**CLAIMS, "preferred_username": "bob"}
    assert validator(RSA, rules=rules).validate(signed(RSA, "RS256", claims)).name == "bob"


def test_unsecured_tokens_are_believed_only_by_those_who_take_nothing_else() -> None:
    anybody = UnsecuredTokens(ClaimRules(needs_issue_time=False), lambda: NOW_S)
    assert anybody.validate(unsecured()).name == "alice"
    with pytest.raises(Refused, match="is signed"):
        anybody.validate(signed(RSA, "RS256"))
    with pytest.raises(Refused, match="has ended"):
        anybody.validate(unsecured({**CLAIMS, "exp": NOW_S - 100}))


def message(token: str, acts_as: str = "", more: str = "") -> bytes:
    return f"n,{acts_as},\x01auth=Bearer {token}\x01{more}\x01".encode()


def test_a_login_by_token_ends_with_its_owner_and_its_end() -> None:
    mechanism = OAuthBearerMechanism(validator(RSA))
    for sent in (
        message(signed(RSA, "RS256")),
        message(signed(RSA, "RS256"), "a=alice"),
        message(signed(RSA, "RS256"), more="traceId=1\x01"),
    ):
        answer, proven, _ = mechanism.begin().step(sent)
        assert answer == b""
        assert proven is not None
        assert (proven.principal, proven.expires_at_ms) == (Principal("alice"), (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01\x01",
        b"n,,auth=Bearer a.b.c",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        message("a.b.c"),
        message(signed(RSA, "RS256"), "a=bob"),
        message(signed(RSA, "RS256"), more=f"auth=Bearer {signed(RSA, 'RS256')}\x01"),
    ],
)
def test_a_refusal_is_told_as_json_and_ends_when_it_was_heard(sent: bytes) -> None:
    exchange = OAuthBearerMechanism(validator(RSA)).begin()
    answer, proven, _ = exchange.step(sent)
    assert (json.loads(answer), proven) == ({"status": "invalid_token"}, None)
    for heard in (b"\x01", message(signed(RSA, "RS256"))):
        with pytest.raises(Refused):
            exchange.step(heard)


# Where keys come from


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(public(RSA))
    source = key_source(path.as_uri(), FetchTimes())
    assert isinstance(source, JwksFile)
    assert source.key_for("rsa", "RS256")
    with pytest.raises(Refused):
        source.key_for("ec", "ES256")
    path.write_bytes(public(RSA, EC))
    assert source.key_for("ec", "ES256")
    path.write_bytes(b"{")
    for _ in range(3):
        assert source.key_for("ec", "ES256"), "what was known stays"
    assert len(caplog.records) == 1, "any client may log in as often as it wants"
    path.write_bytes(public(EC))
    assert source.key_for("ec", "ES256")
    with pytest.raises(Refused):
        source.key_for("rsa", "RS256")


def test_of_a_file_of_20000_keys_only_those_are_read_that_tokens_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(entry: dict[str, Any]) -> Any:
        read.append(entry["kid"])
        return import_key(entry)

    monkeypatch.setattr(jwk, "import_key", counted)
    keys = [{**RSA.as_dict(private=False), "kid": f"key-{number}"} for number in range(20_000)]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [*keys, EC.as_dict(private=False)]}))
    source = key_source(path.as_uri(), FetchTimes())
    read.clear()
    tokens = SignedTokens(source, RULES, lambda: NOW_S)
    for _ in range(3):
        assert tokens.validate(signed(RSA, "RS256", kid="key-19999")).name == "alice"
        assert tokens.validate(signed(EC, "ES256")).name == "alice"
    for key_id in ("unknown", None):
        with pytest.raises(Refused):
            source.key_for(key_id, "RS256")
    assert read == ["key-19999", "ec", "key-1"], "key-0 was read at the start, to see that there is one"
    for number in range(1000):
        assert source.key_for(f"key-{number}", "RS256")
    path.write_bytes(b" " * (16 * 1024 * 1024 + 1))
    assert source.key_for("key-1", "RS256"), "a file that is too long is not read"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"keys": {}}', b'{"keys": 5}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_set_of_keys_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"it (is|has)|decode"):
        KeySet.parse(raw)


def test_a_set_may_hold_anything_among_its_keys() -> None:
    ours = EC.as_dict(private=False)
    junk: list[Any] = [
        None,
        5,
        "x",
        [],
        {},
        {"kty": []},
        {"kty": "EC", "crv": {}},
        {"kty": "RSA", "kid": "ec"},
    ]
    raw = json.dumps({"a": 1, "keys": [*junk, {**ours, "kid": 7, "alg": None}, ours]}).encode()
    raw = b"\xef\xbb\xbf" + raw
    assert Keys(raw).key_for("ec", "ES256")
    assert Keys(raw).key_for(None, "ES256")
    with pytest.raises(Refused):
        Keys(raw).key_for("ec", "RS256")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///no/such/file", "holds no JSON Web Key Set"),
        ("file://host/keys", "names no file"),
        ("ftp://host/keys", "is no URL"),
        ("keys.json", "is no URL"),
        ("https://", "is no URL"),
        ("https://user:hush@host/keys", "must not hold"),
    ],
)
def test_what_is_no_source_of_keys_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        key_source(url, FetchTimes())
    assert "hush" not in str(refused.value)


def test_only_urls_that_are_allowed_are_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not among the URLs"):
        key_source("https://host/a", FetchTimes(), ["https://host/b"])
    assert isinstance(key_source("https://host/b", FetchTimes(), ["https://host/b"]), JwksEndpoint)


class Issuer:
    """What a URL gives, and how often it was asked."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys
        self.fetches = 0
        self.now_s = 0.0
        self.failing = False
        self.open = threading.Event()
        self.open.set()
        self.source = JwksEndpoint("https://host/keys", FetchTimes(), self.fetch, lambda: self.now_s)

    def fetch(self, url: str) -> bytes:
        self.open.wait(10)
        self.fetches += 1
        if self.failing:
            raise OSError("unreachable")
        return public(*self.keys)

    def knows(self, key_id: str, algorithm: str) -> bool:
        try:
            return bool(self.source.key_for(key_id, algorithm))
        except Refused:
            return False


def test_an_unknown_key_makes_it_look_again_at_most_once_in_a_while() -> None:
    issuer = Issuer(RSA)
    assert issuer.knows("rsa", "RS256")
    assert not any(issuer.knows(f"unknown-{each}", "RS256") for each in range(100))
    assert issuer.fetches == 1
    issuer.keys = (RSA, EC)
    issuer.now_s += 11
    assert issuer.knows("ec", "ES256")
    assert issuer.fetches == 2


def test_failures_leave_the_keys_and_are_tried_again_later_and_later() -> None:
    issuer = Issuer(RSA)
    issuer.failing = True
    assert not issuer.knows("rsa", "RS256")
    assert not issuer.knows("rsa", "RS256")
    assert issuer.fetches == 1
    issuer.now_s += 0.11
    assert not issuer.knows("rsa", "RS256")
    issuer.now_s += 0.11
    assert not issuer.knows("rsa", "RS256")
    assert issuer.fetches == 2
    issuer.failing = False
    issuer.now_s += 0.2
    assert issuer.knows("rsa", "RS256")
    issuer.failing = True
    issuer.now_s += 4000
    assert issuer.knows("rsa", "RS256")
    assert not issuer.knows("ec", "ES256")
    assert issuer.knows("rsa", "RS256")


def test_a_slow_issuer_keeps_few_waiting_and_known_keys_none() -> None:
    issuer = Issuer(RSA)
    assert issuer.knows("rsa", "RS256")
    issuer.now_s += 11
    issuer.open.clear()
    waiting = [threading.Thread(target=issuer.knows, args=("new", "RS256")) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while issuer.source._waiting._value:
        pass
    with pytest.raises(Refused, match="enough others wait"):
        issuer.source.key_for("new", "RS256")
    assert issuer.knows("rsa", "RS256")
    issuer.open.set()
    for thread in waiting:
        thread.join(10)
    assert issuer.fetches == 2
