"""GSSAPI's dialogue on both sides, over a library that is made up; tests/compat has a real one and a KDC."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.client._network.from_options import network_settings
from tidelog.client._network.security.gssapi import gssapi
from tidelog.client.errors import AuthenticationError
from tidelog.client.options import ADMIN, ClientConfig
from tidelog.errors import ConfigError
from tidelog.security.kerberos.auth_to_local import AuthToLocal
from tidelog.security.kerberos.context import KerberosError
from tidelog.security.principal import Principal
from tidelog.security.sasl.gssapi import GssapiExchange, GssapiMechanism
from tidelog.security.sasl.mechanism import Refused
from tidelog.testing.broker_thread import BrokerThread

RULES = AuthToLocal(("DEFAULT",), "R")
KEYTAB_LINE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"


class MadeUpContext:
    """One side: takes the tokens that it awaits, and answers each with its own."""

    def __init__(self, *steps: tuple[bytes | None, bytes], initiator: str = "alice@R") -> None:
        self._steps = list(steps)
        self.initiator = initiator

    @property
    def is_complete(self) -> bool:
        return not self._steps

    def step(self, token: bytes | None) -> bytes:
        awaited, answer = self._steps.pop(0)
        if token != awaited:
            raise KerberosError("Clock skew too great")
        return answer

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped "):
            raise KerberosError("Message stream modified")
        return message.removeprefix(b"wrapped ")


def accepting(*steps: tuple[bytes | None, bytes], initiator: str = "alice@R") -> GssapiExchange:
    def accept() -> MadeUpContext:
        return MadeUpContext(*steps, initiator=initiator)

    return GssapiMechanism(accept, RULES).begin()


@pytest.mark.parametrize(
    ("broker", "client"),
    [
        pytest.param([(b"ticket", b"")], [(None, b"ticket")], id="the client alone proves itself"),
        pytest.param([(b"ticket", b"proof")], [(None, b"ticket"), (b"proof", b"")], id="both do"),
        pytest.param(
            [(b"ticket", b"proof"), (b"more", b"")],
            [(None, b"ticket"), (b"proof", b"more")],
            id="in three steps",
        ),
    ],
)
def test_both_sides_agree_on_no_layer_and_the_ticket_says_who_it_is(
    broker: list[tuple[bytes | None, bytes]], client: list[tuple[bytes | None, bytes]]
) -> None:
    exchange, context = accepting(*broker), MadeUpContext(*client)
    dialogue = gssapi(context, context.step(None))
    message = next(dialogue)
    while True:
        step = exchange.step(message)
        try:
            message = dialogue.send(step.answer)
        except StopIteration:
            break
    assert step.proven is not None
    assert step.proven.principal == Principal("alice")
    assert step.proven.expires_at_ms is None
    assert step.is_silent
    with pytest.raises(Refused, match="is over"):
        exchange.step(b"")


def test_whom_a_client_says_to_act_as_is_passed_over() -> None:
    exchange = accepting((b"ticket", b""))
    assert exchange.step(b"ticket").answer == b"wrapped \x01\0\0\0"
    proven = exchange.step(b"wrapped \x01\xff\xff\xffadmin").proven
    assert proven is not None
    assert proven.principal == Principal("alice")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([b""], "no ticket"),
        ([b"forged"], "its ticket is refused: Clock skew"),
        ([b"ticket", b"more"], "nothing was due"),
        ([b"ticket", b"", b""], "choice of a layer is refused"),
        ([b"ticket", b"", b"\x01\0\0\0"], "choice of a layer is refused"),
        ([b"ticket", b"", b"wrapped "], "not offered"),
        ([b"ticket", b"", b"wrapped \x01\0\0"], "not offered"),
        ([b"ticket", b"", b"wrapped \x00\0\0\0"], "not offered"),
        ([b"ticket", b"", b"wrapped \x02\0\0\0"], "not offered"),
        ([b"ticket", b"", b"wrapped \x05\0\0\0"], "not offered"),
    ],
)
def test_what_is_out_of_order_or_forged_ends_the_login_for_good(messages: list[bytes], why: str) -> None:
    exchange = accepting((b"ticket", b"proof"))
    for message in messages[:-1]:
        assert exchange.step(message).proven is None
    with pytest.raises(Refused, match=why):
        exchange.step(messages[-1])
    with pytest.raises(Refused, match="is over"):
        exchange.step(b"ticket")


@pytest.mark.parametrize(
    "principal", ["alice@OTHER", r"alice\@R@R", "WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS"]
)
def test_a_ticket_of_somebody_without_a_name_is_refused(principal: str) -> None:
    exchange = accepting((b"ticket", b""), initiator=principal)
    exchange.step(b"ticket")
    with pytest.raises(Refused, match="its principal"):
        exchange.step(b"wrapped \x01\0\0\0")


@pytest.mark.parametrize("offer", [b"", b"wrapped \x01", b"wrapped \x06\0\0\0", b"wrapped \x01\0\0\0\0"])
def test_a_client_refuses_an_offer_that_it_cannot_take(offer: bytes) -> None:
    context = MadeUpContext((None, b"ticket"))
    dialogue = gssapi(context, context.step(None))
    next(dialogue)
    with pytest.raises((AuthenticationError, KerberosError)):
        dialogue.send(offer)


def _broker(directory: Path, keytab: Path) -> None:
    line = f'{KEYTAB_LINE} keyTab="{keytab}" principal="kafka/localhost@R";'
    options = {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "listener.name.clients.gssapi.sasl.jaas.config": line,
    }
    with BrokerThread(directory / "data", options=options):
        pass


def _client(_: Path, keytab: Path) -> None:
    line = f'{KEYTAB_LINE} keyTab="{keytab}" principal="alice@R";'
    options = {"security_protocol": "SASL_SSL", "sasl_kerberos_service_name": "kafka"}
    network_settings(
        ClientConfig.parse(ADMIN, bootstrap_servers="localhost:1", sasl_jaas_config=line, **options)
    )


@pytest.mark.parametrize("start", [_broker, _client])
def test_without_the_extra_nothing_starts_and_a_sentence_names_it(
    start: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    (tmp_path / "keytab").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[gssapi\]'"):
        start(tmp_path, tmp_path / "keytab")
