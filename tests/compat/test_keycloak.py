"""Keycloak as it comes: people log in at the console through it, and clients at a broker with its tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from foreign.broker_process import Tidelog, free_port
from foreign.keycloak import Keycloak
from playwright.sync_api import Page, expect
from tests.compat.conftest import available
from tests.rigs.console_browser import browser as browser
from tests.rigs.console_browser import needs_chromium
from tests.rigs.console_browser import page as page
from tests.rigs.console_thread import ConsoleThread, console_settings

from tidelog import Admin, Consumer, NewTopic, TopicPartition
from tidelog.console.settings import Grant, Listen, LoginSettings, OidcSettings, Role, Way
from tidelog.testing import broker

SECRET = "what a program knows"
ALICE, BOB = "alice's word", "bob's word"
WAIT_S = 60.0


class Guarded(NamedTuple):
    """Where a broker is reached: without a login, and with a token."""

    inside: str
    tokens: str


def realm(console_url: str) -> dict[str, Any]:
    """Two people, one of them an admin; the console; and a program that has an account of its own."""
    groups = {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"}
    audience = {"included.custom.audience": "tidelog", "access.token.claim": "true"}
    return {
        "realm": "company",
        "enabled": True,
        "groups": [{"name": "kafka-admins"}],
        "users": [person("alice", ALICE, ["kafka-admins"]), person("bob", BOB, [])],
        "clients": [
            {
                "clientId": "console",
                "secret": SECRET,
                "redirectUris": [f"{console_url}/login/oidc"],
                "attributes": {"post.logout.redirect.uris": f"{console_url}/"},
                "protocolMappers": [mapper("oidc-group-membership-mapper", groups)],
            },
            program("loader", [mapper("oidc-audience-mapper", audience)]),
            program("stranger", []),
        ],
    }


def person(name: str, password: str, groups: list[str]) -> dict[str, Any]:
    return {
        "username": name,
        "enabled": True,
        "email": f"{name}@example.org",
        "firstName": name.title(),
        "lastName": "Example",
        "credentials": [{"type": "password", "value": password}],
        "groups": groups,
    }


def program(name: str, mappers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "clientId": name,
        "secret": SECRET,
        "serviceAccountsEnabled": True,
        "standardFlowEnabled": False,
        "protocolMappers": mappers,
    }


def mapper(kind: str, config: dict[str, str]) -> dict[str, Any]:
    return {"name": kind, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


@pytest.fixture(scope="module")
def console_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory, console_port: int) -> Iterator[Keycloak]:
    directory = tmp_path_factory.mktemp("keycloak")
    with available(), Keycloak(directory, realm(f"http://127.0.0.1:{console_port}")) as running:
        yield running


@needs_chromium
def test_people_log_in_at_keycloak_with_the_roles_of_their_groups(
    page: Page, keycloak: Keycloak, console_port: int, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{console_port}"
    oidc = OidcSettings(
        keycloak.issuer,
        "console",
        client_secret=SECRET,
        name="Company",
        user_claim="preferred_username",
        redirect_url=f"{url}/login/oidc",
    )
    with broker(topics={"orders": 1}) as cluster:
        settings = console_settings(
            tmp_path,
            cluster.bootstrap_servers,
            listen=Listen("127.0.0.1", console_port),
            login=LoginSettings("main", scram=False, oidc=oidc),
            grants=(Grant("", Role.ADMIN, group="kafka-admins", way=Way.OIDC),),
        )
        with ConsoleThread(settings) as console:
            log_in(page, console, "alice", ALICE)
            expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
            assert page.url == f"{url}/static/index.html#/main/topics/orders"
            expect(page.get_by_text("alice", exact=True)).to_be_visible()
            assert roles(page, console) == {"main": "admin"}
            log_out(page)
            # Keycloak's session is over, too: it asks who is there.
            log_in(page, console, "bob", BOB)
            expect(page.get_by_text("bob may see no cluster here.")).to_be_visible()
            assert roles(page, console) == {}


def roles(page: Page, console: ConsoleThread) -> dict[str, str]:
    """What the person may do, by cluster."""
    session = page.request.get(f"{console.url}/api/session").json()
    return {each["name"]: each["role"] for each in session["clusters"]}


def log_in(page: Page, console: ConsoleThread, name: str, password: str) -> None:
    page.goto(f"{console.url}/static/index.html#/main/topics/orders")
    page.get_by_role("button", name="Log in with Company").click()
    page.get_by_label("Username or email").fill(name)
    page.locator("#password").fill(password)
    page.get_by_role("button", name="Sign In").click()


def log_out(page: Page) -> None:
    page.get_by_role("button", name="Log out").click()
    confirm = page.get_by_role("button", name="Logout")
    expect(confirm.or_(page.get_by_role("button", name="Log in with Company"))).to_be_visible()
    if confirm.is_visible():
        confirm.click()
    expect(page.get_by_role("button", name="Log in with Company")).to_be_visible()


@pytest.fixture(scope="module")
def guarded(keycloak: Keycloak, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that takes Keycloak's tokens, where they are meant for it."""
    process = Tidelog(tmp_path_factory.mktemp("guarded"))
    tokens = free_port()
    listeners = f"INSIDE://127.0.0.1:{process.port},TOKENS://127.0.0.1:{tokens}"
    process.options = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{keycloak.endpoints}/certs",
        "sasl.oauthbearer.expected.issuer": keycloak.issuer,
        "sasl.oauthbearer.expected.audience": "tidelog",
        "sasl.oauthbearer.sub.claim.name": "preferred_username",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:service-account-loader",
    }
    process.start()
    try:
        with Admin(bootstrap_servers=process.address) as admin:
            admin.create_topics([NewTopic("orders", 1)])
        yield Guarded(process.address, f"127.0.0.1:{tokens}")
    finally:
        process.stop()


def test_librdkafka_logs_in_with_a_token_of_keycloak(keycloak: Keycloak, guarded: Guarded) -> None:
    errors: list[KafkaError] = []
    producer = producer_of(keycloak, guarded, "loader", errors)
    told: list[KafkaError | None] = []
    producer.produce("orders", b"by token", on_delivery=lambda error, _: told.append(error))
    producer.flush(WAIT_S)
    assert (told, errors) == ([None], [])
    with Consumer(bootstrap_servers=guarded.inside, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert next(iter(consumer)).value == b"by token"


def test_a_token_for_somebody_else_is_refused(keycloak: Keycloak, guarded: Guarded) -> None:
    """Keycloak gives the stranger a token; it is not meant for brokers."""
    errors: list[KafkaError] = []
    producer = producer_of(keycloak, guarded, "stranger", errors)
    deadline = time.monotonic() + WAIT_S
    while not any(each.code() == KafkaError._AUTHENTICATION for each in errors):
        assert time.monotonic() < deadline, errors
        producer.poll(0.1)


def producer_of(keycloak: Keycloak, guarded: Guarded, name: str, errors: list[KafkaError]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": guarded.tokens,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": name,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": f"{keycloak.endpoints}/token",
            "error_cb": errors.append,
        }
    )
