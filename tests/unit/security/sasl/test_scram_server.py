from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping

import pytest
import scramp

from tidelog.client._network.security.scram import scram
from tidelog.client.errors import AuthenticationError
from tidelog.security.principal import Principal
from tidelog.security.sasl.fake_credentials import CredentialShapes
from tidelog.security.sasl.mechanism import Exchange, Proven, Refused, SlowStep, Step
from tidelog.security.sasl.scram import ScramLogin, ScramServer, user_login
from tidelog.security.sasl.scram_credential import BY_LABEL, ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
BOTH = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])


class Credentials:
    def __init__(
        self,
        users: Mapping[str, ScramCredential],
        tokens: Mapping[str, tuple[str, Proven]] | None = None,
    ) -> None:
        self.shapes = CredentialShapes()
        self._users = users
        self._tokens = tokens or {}

    def user(self, mechanism: ScramMechanism, name: str) -> ScramLogin | None:
        credential = self._users.get(name)
        return None if credential is None else user_login(name, credential)

    def token(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> ScramLogin | Callable[[], ScramLogin] | None:
        found = self._tokens.get(token_id)
        if found is None:
            return None
        password, proven = found
        return lambda: ScramLogin(ScramCredential.of_password(mechanism, password, 4096, salt), proven)


def server(mechanism: ScramMechanism, passwords: Mapping[str, str], secret: bytes = b"s" * 32) -> ScramServer:
    users = {name: ScramCredential.of_password(mechanism, each, 4096) for name, each in passwords.items()}
    credentials = Credentials(users)
    for name, credential in users.items():
        credentials.shapes.put(name, {mechanism: credential})
    return ScramServer(mechanism, credentials, secret)


def step(exchange: Exchange, message: bytes) -> Step:
    """One message, and what a thread would do for it."""
    taken = exchange.step(message)
    return taken.finish() if isinstance(taken, SlowStep) else taken


def log_in(to: ScramServer, name: str, password: str, *, tokenauth: bool = False) -> Proven:
    """By our own client, which checks the server's signature, too."""
    dialogue = scram(to.name, name, password, tokenauth=tokenauth)
    exchange = to.begin()
    message = next(dialogue)
    while True:
        answer, proven, _ = step(exchange, message)
        try:
            message = dialogue.send(answer)
        except StopIteration:
            assert proven is not None
            return proven


@pytest.mark.parametrize(
    ("mechanism", "salt", "nonces", "proof", "signature"),
    [
        (
            SHA_256,
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_the_vector_of_rfc_7677(
    mechanism: ScramMechanism, salt: str, nonces: tuple[str, str], proof: str, signature: str
) -> None:
    raw_salt = base64.b64decode(salt)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, b"pencil", raw_salt, 4096)
    users = {"user": ScramCredential.of_salted_password(mechanism, raw_salt, salted, 4096)}
    exchange = ScramServer(mechanism, Credentials(users), b"", lambda: nonces[1]).begin()

    first = step(exchange, f"n,,n=user,r={nonces[0]}".encode())
    assert first.answer.decode() == f"r={nonces[0]}{nonces[1]},s={salt},i=4096"
    last = step(exchange, f"c=biws,r={nonces[0]}{nonces[1]},p={proof}".encode())
    assert last.answer.decode() == f"v={signature}"
    assert last.proven == Proven(Principal("user"))


@BOTH
@pytest.mark.parametrize("name", ["alice", "a=b,c", "ünal", "CN=x,O=y"])
def test_our_own_client_logs_in(mechanism: ScramMechanism, name: str) -> None:
    assert log_in(server(mechanism, {name: "secret"}), name, "secret").principal == Principal(name)


@BOTH
def test_a_foreign_client_logs_in_and_believes_the_server(mechanism: ScramMechanism) -> None:
    exchange = server(mechanism, {"alice": "secret"}).begin()
    client = scramp.ScramClient([mechanism.label], "alice", "secret")
    client.set_server_first(step(exchange, client.get_client_first().encode()).answer.decode())
    last = step(exchange, client.get_client_final().encode())
    client.set_server_final(last.answer.decode())
    assert last.proven is not None


@BOTH
def test_a_wrong_password_and_a_wrong_name_are_refused_alike(mechanism: ScramMechanism) -> None:
    to = server(mechanism, {"alice": "secret"})
    texts = set()
    for name, password in (("alice", "wrong"), ("nobody", "secret"), ("nobody", "")):
        with pytest.raises(Refused) as refused:
            log_in(to, name, password)
        texts.add(str(refused.value))
    assert len(texts) == 1


@BOTH
def test_names_cannot_be_told_from_what_is_answered(mechanism: ScramMechanism) -> None:
    def first(to: ScramServer, name: str) -> list[str]:
        return step(to.begin(), f"n,,n={name},r=x".encode()).answer.decode().split(",")[1:]

    to = server(mechanism, {"alice": "secret"})
    again = server(mechanism, {"alice": "secret"})
    assert first(to, "nobody") == first(to, "nobody") == first(again, "nobody")
    assert first(to, "nobody") != first(to, "somebody")
    assert first(to, "nobody") != first(server(mechanism, {}, b"another" * 5), "nobody")
    # The same length of salt and number of iterations as that of somebody who is there.
    assert [len(each) for each in first(to, "alice")] == [len(each) for each in first(to, "nobody")]


def test_what_was_heard_of_one_login_is_good_for_no_other() -> None:
    to = server(SHA_256, {"alice": "secret"})
    dialogue = scram(to.name, "alice", "secret", nonce="fixed")
    exchange = to.begin()
    first_message = next(dialogue)
    last_message = dialogue.send(step(exchange, first_message).answer)
    assert step(exchange, last_message).proven is not None

    replayed = to.begin()
    step(replayed, first_message)
    with pytest.raises(Refused, match="nonce"):
        step(replayed, last_message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("r=", "r=x", 1),
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace(",p=", ",p=AAAA"),
        lambda text: text[: text.index(",p=")] + ",p=",
        lambda text: text[: text.index(",p=")] + ",p=AAAA",
        lambda text: text[: text.index(",p=")],
        lambda text: "",
        lambda text: text + ",x=1",
    ],
)
def test_a_forged_last_message_is_refused(change: object) -> None:
    assert callable(change)
    to = server(SHA_256, {"alice": "secret"})
    dialogue = scram(to.name, "alice", "secret")
    exchange = to.begin()
    last = dialogue.send(step(exchange, next(dialogue)).answer).decode()
    with pytest.raises(Refused):
        step(exchange, change(last).encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,r=x,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=\xff",
        b"n,,m=x,n=alice,r=x",
        b"c=biws,r=x,p=AAAA",
    ],
)
def test_a_first_message_that_is_not_scrams_is_refused(message: bytes) -> None:
    with pytest.raises(Refused):
        step(server(SHA_256, {"alice": "secret"}).begin(), message)


def test_a_server_without_the_password_is_found_out() -> None:
    to = server(SHA_256, {"alice": "secret"})
    dialogue = scram(to.name, "alice", "secret")
    last = dialogue.send(step(to.begin(), next(dialogue)).answer)
    assert last
    with pytest.raises(AuthenticationError, match="does not know the password"):
        dialogue.send(b"v=" + base64.b64encode(b"x" * 32))


def test_tokens_are_looked_up_when_they_are_announced() -> None:
    owner = Proven(Principal("alice"), by_token=True, expires_at_ms=5.0)
    to = ScramServer(SHA_512, Credentials({}, {"id": ("hmac", owner)}), b"")
    assert log_in(to, "id", "hmac", tokenauth=True) == owner
    for name, password, tokenauth in (("id", "hmac", False), ("id", "other", True), ("other", "hmac", True)):
        with pytest.raises(Refused, match="its name or its password is wrong"):
            log_in(to, name, password, tokenauth=tokenauth)


def test_the_first_answer_about_a_token_is_the_same_whether_there_is_one_or_not() -> None:
    def first(to: ScramServer, name: str) -> list[str]:
        taken = to.begin().step(f"n,,n={name},r=x,tokenauth=true".encode())
        assert isinstance(taken, Step), "what takes long is not done before the proof is there"
        return taken.answer.decode().split(",")[1:]

    owner = Proven(Principal("alice"), by_token=True)
    with_token = ScramServer(SHA_256, Credentials({}, {"id": ("hmac", owner)}), b"s" * 32)
    without = ScramServer(SHA_256, Credentials({}), b"s" * 32)
    assert first(with_token, "id") == first(without, "id")
    assert first(with_token, "id") != first(with_token, "other")
    assert log_in(with_token, "id", "hmac", tokenauth=True) == owner


def test_credentials_are_written_as_kafka_does_and_shown_to_nobody() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    text = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    assert credential.encode() == text
    assert ScramCredential.parse(text) == credential
    assert repr(credential) == "ScramCredential(iterations=4096)"
    for bad in ("", "salt=c2FsdA==", text.replace("4096", "many"), text.replace("c2FsdA==", "!")):
        with pytest.raises(ValueError, match="not as Kafka writes") as refused:
            ScramCredential.parse(bad)
        assert "c3RvcmVk" not in str(refused.value)


def test_mechanisms_have_kafkas_numbers() -> None:
    assert {label: each.type for label, each in BY_LABEL.items()} == {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
