"""Logging in at a provider of OpenID Connect: what is right goes through, and every attack is refused."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey, RSAKey
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.oidc_browser import REDIRECT, Browser, settings_for
from tests.rigs.oidc_provider import CLIENT_ID, SECRET, Claims, OidcProvider
from tests.rigs.tls_files import TlsFiles

from tidelog.console.auth import oidc, oidc_provider
from tidelog.console.settings import Grant, Listen, LoginSettings, Role, Way
from tidelog.security.sasl import jwks
from tidelog.security.sasl.jwks import FetchTimes
from tidelog.testing import LocalBroker, broker

OURS = ("tidelog", "uvicorn", "asyncio")
"""The loggers of the console."""
GRANTS = (
    Grant("alice", Role.OPERATOR, topics=("orders",), way=Way.OIDC),
    Grant("", Role.ADMIN, group="kafka-admins", way=Way.OIDC),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 1, "payments": 1}) as running:
        yield running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that failed, or keys that were fetched, may be asked again at once."""
    monkeypatch.setattr(oidc_provider, "FAILURE_KEPT_S", 0.0)
    monkeypatch.setattr(oidc_provider, "FETCH_TIMES", FetchTimes(3600.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def running_provider() -> Iterator[OidcProvider]:
    with OidcProvider() as running:
        yield running


@pytest.fixture
def provider(running_provider: OidcProvider) -> OidcProvider:
    running_provider.reset()
    return running_provider


@pytest.fixture(scope="module")
def running_console(
    cluster: LocalBroker, running_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleThread]:
    login = LoginSettings("main", scram=False, oidc=settings_for(running_provider))
    data_dir = tmp_path_factory.mktemp("console")
    settings = console_settings(data_dir, cluster.bootstrap_servers, login=login, grants=GRANTS)
    with ConsoleThread(settings) as running:
        yield running


@pytest.fixture
def console(running_console: ConsoleThread, provider: OidcProvider) -> ConsoleThread:
    """One that knows nothing of the provider yet, nor of its keys."""
    login = running_console.console.oidc
    assert login is not None
    login.provider = oidc_provider.OidcProvider(settings_for(provider), REDIRECT)
    return running_console


@pytest.fixture
def browser(console: ConsoleThread) -> Browser:
    return Browser(console)


def audit(console: ConsoleThread) -> list[dict[str, Any]]:
    text = console.settings.data_dir.joinpath("audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def refused(browser: Browser, answer: httpx.Response, said: str, status: int) -> None:
    """The page says why, nobody is logged in, and no session was touched."""
    assert answer.status_code == status, answer.text
    assert said in answer.text.replace("&#x27;", "'").replace("&quot;", '"')
    assert browser.console.console.cookie not in answer.headers.get("set-cookie", "").split(";")[0]
    assert browser.session()["user"] is None


def test_somebody_logs_in_with_his_role_and_out(
    browser: Browser, provider: OidcProvider, console: ConsoleThread
) -> None:
    noted = len(audit(console))
    before = browser.session()
    assert (before["login"], before["passwords"], before["provider"]) == (True, False, "Example")
    assert browser.http.get("/api/clusters/main/topics").status_code == 401
    old_cookie = browser.http.cookies[console.console.cookie]
    answer = browser.log_in(provider, "#/main/topics/orders")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/static/index.html#/main/topics/orders",
    )
    after = browser.session()
    assert after["user"] == "alice"
    assert browser.http.cookies[console.console.cookie] != old_cookie
    path = "/api/clusters/main/topics"
    headers = {"X-Console-Token": after["token"]}
    assert (
        browser.http.post(f"{path}/orders/messages", json={"value": "x"}, headers=headers).status_code == 200
    )
    assert browser.http.get(f"{path}/payments").status_code == 403
    out = browser.http.request("DELETE", "/api/session", json={}, headers=headers).json()["url"]
    assert out.startswith(f"{provider.issuer}/logout?")
    assert parse_qs(urlsplit(out).query) == {
        "client_id": [CLIENT_ID],
        "post_logout_redirect_uri": ["http://127.0.0.1:1/"],
    }
    assert browser.session()["user"] is None
    browser.http.cookies.set(console.console.cookie, old_cookie, domain="127.0.0.1")
    assert browser.session()["user"] is None
    done = [each for each in audit(console)[noted:] if each["action"] in ("login", "produce", "logout")]
    assert [(each["action"], each["user"], each["outcome"]) for each in done] == [
        ("login", "alice", "done"),
        ("produce", "alice", "done"),
        ("logout", "alice", "done"),
    ]


def test_groups_of_the_provider_have_roles(browser: Browser, provider: OidcProvider) -> None:
    provider.user, provider.groups = "carol", ["staff", "kafka-admins", 7]
    browser.log_in(provider)
    (only,) = browser.session()["clusters"]
    assert only["role"] == "admin"
    provider.groups = ["kafka-admins-of-others", "staff"]
    browser.log_in(provider)
    assert browser.session()["clusters"] == []


def test_groups_may_be_deep_in_the_token(
    cluster: LocalBroker, provider: OidcProvider, tmp_path: Path
) -> None:
    provider.claims = lambda claims: claims.update(realm_access={"roles": ["kafka-admins"]}, groups=[])
    login = LoginSettings("main", scram=False, oidc=settings_for(provider, groups_claim="realm_access.roles"))
    settings = console_settings(tmp_path, cluster.bootstrap_servers, login=login, grants=GRANTS)
    with ConsoleThread(settings) as console:
        browser = Browser(console)
        browser.log_in(provider)
        assert [each["role"] for each in browser.session()["clusters"]] == ["admin"]


def test_cookies_and_headers_are_safe_and_tokens_are_nowhere(
    browser: Browser, provider: OidcProvider, console: ConsoleThread, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[str] = []

    def give(token: str) -> str:
        given.append(token)
        return token

    provider.id_token = give
    with caplog.at_level(logging.DEBUG):
        begun = browser.try_begin()
        assert begun.headers["set-cookie"].startswith(console.console.login_cookie)
        for part in ("HttpOnly", "SameSite=lax", "Path=/login/oidc", "Max-Age=600"):
            assert part in begun.headers["set-cookie"]
        query = browser.visit(begun.json()["url"], provider)
        answer = browser.come_back(query)
    (session_cookie,) = (
        each
        for each in answer.headers.get_list("set-cookie")
        if each.startswith(console.console.cookie + "=")
    )
    assert "HttpOnly" in session_cookie
    assert "SameSite=strict" in session_cookie
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    (token,) = given
    secret = (token, token.split(".")[1], "opaque-access", query["code"], query["state"], SECRET)
    kept = [each.read_bytes() for each in console.settings.data_dir.rglob("*") if each.is_file()]
    seen = "\n".join(
        [
            begun.text,
            answer.text,
            str(answer.headers),
            browser.http.get("/api/session").text,
            repr(console.settings),
            *(f"{each.name} {each.getMessage()}" for each in caplog.records if each.name.startswith(OURS)),
        ]
    )
    for each in secret:
        assert all(each.encode() not in data for data in kept)
        # The state goes out with the browser; the rest is between the console and the provider.
        assert each == query["state"] or each not in seen


def test_both_ways_are_offered_and_two_alices_are_two_people(
    cluster: LocalBroker, provider: OidcProvider, tmp_path: Path
) -> None:
    login = LoginSettings("main", oidc=settings_for(provider))
    grants = (Grant("alice", Role.ADMIN, way=Way.SCRAM), Grant("alice", Role.VIEWER, way=Way.OIDC))
    settings = console_settings(tmp_path, cluster.bootstrap_servers, login=login, grants=grants)
    with ConsoleThread(settings) as console:
        browser = Browser(console)
        state = browser.session()
        assert (state["passwords"], state["provider"]) == (True, "Example")
        browser.log_in(provider)
        state = browser.session()
        assert state["user"] == "oidc:alice"
        assert [each["role"] for each in state["clusters"]] == ["viewer"]


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "#//evil.example\r\nSet-Cookie: a=b",
        "#/main\r\nLocation: https://evil.example",
        "#/" + "x" * 3000,
        "javascript:alert(1)",
        "#/ü",
    ],
)
def test_after_a_login_the_browser_stays_here(browser: Browser, provider: OidcProvider, place: str) -> None:
    answer = browser.log_in(provider, place)
    assert (answer.status_code, answer.headers["location"]) == (303, "/static/index.html")
    assert browser.session()["user"] == "alice"


def test_an_answer_is_good_once_and_a_session_cannot_be_planted(
    browser: Browser, provider: OidcProvider, console: ConsoleThread
) -> None:
    query = browser.visit(browser.begin(), provider)
    planted = browser.http.cookies[console.console.cookie]
    login_cookie = browser.http.cookies[console.console.login_cookie]
    assert browser.come_back(query).status_code == 303
    attacker = Browser(console)
    attacker.http.cookies.set(console.console.cookie, planted, domain="127.0.0.1")
    assert attacker.session()["user"] is None  # whoever knew the session before is not in it now
    attacker.http.cookies.set(
        console.console.login_cookie, login_cookie, domain="127.0.0.1", path="/login/oidc"
    )
    refused(attacker, attacker.come_back(query), "was started in another browser", 400)


def test_nobody_logs_another_in(browser: Browser, provider: OidcProvider, console: ConsoleThread) -> None:
    """The attacker's own answer, in the victim's browser: without a login begun there, and with one."""
    attacker = Browser(console)
    provider.user = "mallory"
    stolen = attacker.visit(attacker.begin(), provider)
    refused(browser, browser.come_back(stolen), "was started in another browser", 400)
    mine = browser.begin()
    refused(browser, browser.come_back(stolen), "belongs to another login (state)", 400)
    provider.user = "alice"
    own = browser.visit(mine, provider)
    assert browser.come_back(own).status_code == 303  # strangers did not end it
    assert browser.session()["user"] == "alice"


def test_a_code_of_another_login_is_refused_by_pkce_and_nonce(
    browser: Browser, provider: OidcProvider, console: ConsoleThread
) -> None:
    attacker = Browser(console)
    provider.user = "mallory"
    stolen = attacker.visit(attacker.begin(), provider)
    mine = browser.visit(browser.begin(), provider)
    refused(
        browser, browser.come_back({**mine, "code": stolen["code"]}), "the answer has the status 400", 502
    )


def test_another_provider_cannot_answer(browser: Browser, provider: OidcProvider) -> None:
    for changed in ({"iss": "https://evil.example"}, {"iss": None}):
        query = {**browser.visit(browser.begin(), provider), **changed}
        kept = {name: value for name, value in query.items() if value is not None}
        refused(browser, browser.come_back(kept), "from another login provider (iss)", 400)
    assert not any(each.startswith("token") for each in provider.asked)


def test_only_our_own_page_begins_a_login(browser: Browser, provider: OidcProvider) -> None:
    browser.session()
    for headers in ({}, {"X-Console-Token": browser.token, "Origin": "https://evil.example"}):
        assert browser.http.post("/api/session/provider", json={}, headers=headers).status_code == 403
    assert browser.http.get("/api/session/provider").status_code == 405
    query = browser.visit(browser.begin(), provider)
    framed = browser.come_back(query, **{"Sec-Fetch-Mode": "no-cors"})
    refused(browser, framed, "must be opened as a top-level page", 403)
    twice = urlencode(query) + "&code=another"
    refused(browser, browser.come_back(twice), "repeats a parameter", 400)
    assert browser.come_back(query).status_code == 303


def test_a_login_that_takes_too_long_is_over(
    browser: Browser, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "PATIENCE_S", -1.0)
    query = browser.visit(browser.begin(), provider)
    refused(browser, browser.come_back(query), "took longer than ten minutes", 400)


def test_what_the_provider_refuses_is_said_and_nothing_else(browser: Browser, provider: OidcProvider) -> None:
    query = browser.visit(browser.begin(), provider)
    denied = {"state": query["state"], "iss": query["iss"], "error": "access_denied"}
    refused(browser, browser.come_back(denied), "the login provider refused: access_denied", 401)
    query = browser.visit(browser.begin(), provider)
    hostile = {**query, "error": "<script>alert(1)</script>"}
    answer = browser.come_back(hostile)
    refused(browser, answer, "an invalid error code", 401)
    assert "<script>" not in answer.text
    refused(browser, browser.come_back({"state": "x", "error": "y"}), "was started in another browser", 400)
    chinese = browser.come_back({"state": "x"}, **{"Accept-Language": "zh-CN,zh;q=0.9"})
    assert "登录失败" in chinese.text


def _times(**seconds: float) -> Callable[[Claims], object]:
    return lambda claims: claims.update({name: int(time.time() + each) for name, each in seconds.items()})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda claims: claims.update(nonce="another"), "for another login (nonce)"),
        (lambda claims: claims.pop("nonce"), "for another login (nonce)"),
        (lambda claims: claims.update(iss="https://evil.example"), "of another issuer (iss)"),
        (lambda claims: claims.update(aud="another-client"), "for another audience (aud)"),
        (lambda claims: claims.update(aud=[CLIENT_ID, "another"]), "several audiences"),
        (lambda claims: claims.update(aud=[CLIENT_ID, "x"], azp="x"), "issued to another client (azp)"),
        (lambda claims: claims.update(azp="another"), "issued to another client (azp)"),
        (_times(iat=-600, exp=-60), "has ended (exp)"),
        (lambda claims: claims.pop("exp"), "has no end (exp)"),
        (lambda claims: claims.pop("iat"), "has no beginning (iat)"),
        (_times(iat=600, exp=900), "was issued in the future (iat)"),
        (_times(nbf=600), "not good yet (nbf)"),
        (lambda claims: claims.pop("sub"), "has no subject (sub)"),
        (lambda claims: claims.update(sub="*"), "not a valid name (sub)"),
        (lambda claims: claims.update(sub="a\nb"), "not a valid name (sub)"),
        (lambda claims: claims.update(exp=float("inf")), "a time that cannot be (exp)"),
    ],
)
def test_an_id_token_is_checked_in_full(
    browser: Browser, provider: OidcProvider, change: Callable[[Claims], object], said: str
) -> None:
    provider.claims = change
    refused(browser, browser.log_in(provider), said, 401)


def test_clocks_may_differ_a_little(browser: Browser, provider: OidcProvider) -> None:
    for change in (_times(iat=15, exp=300), _times(iat=-300, exp=-15)):
        provider.claims = change
        assert browser.log_in(provider).status_code == 303
        assert browser.session()["user"] == "alice"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


_NONE = _base64url(b'{"alg":"none"}')
_HMAC = _base64url(b'{"alg":"HS256","kid":"one"}')


def _unsigned(token: str) -> str:
    return f"{_NONE}.{token.split('.')[1]}."


def _changed(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"{header}.{_base64url(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (_unsigned, "its token is not signed"),
        (_changed, "its token's signature is wrong"),
        (lambda token: token.rpartition(".")[0] + ".", "its token is not signed"),
        (lambda token: "no token", "does not have three parts"),
        (lambda token: "e30.e30.e30", "its token is not signed"),
        (lambda token: ["a", "list"], "contains no ID token"),
        (lambda token: None, "contains no ID token"),
    ],
)
def test_a_token_that_is_not_signed_is_nobodys(
    browser: Browser, provider: OidcProvider, forge: Callable[[str], object], said: str
) -> None:
    provider.id_token = forge
    refused(browser, browser.log_in(provider), said, 502 if "ID token" in said else 401)


def test_the_public_key_is_no_secret_of_an_hmac(browser: Browser, provider: OidcProvider) -> None:
    assert isinstance(provider.key, RSAKey)
    public = provider.key.as_pem(private=False)
    secret = {"kty": "oct", "kid": "one", "k": _base64url(public)}
    provider.published = [provider.key.as_dict(private=False), secret]

    def forge(token: str) -> str:
        signed = f"{_HMAC}.{token.split('.')[1]}"
        return f"{signed}.{_base64url(hmac.digest(public, signed.encode(), 'sha256'))}"

    provider.id_token = forge
    refused(browser, browser.log_in(provider), "an algorithm that is not taken here ('HS256')", 401)


def test_only_published_keys_and_chosen_algorithms_count(browser: Browser, provider: OidcProvider) -> None:
    published = provider.key
    provider.key = RSAKey.generate_key(2048, {"kid": "one"})
    refused(browser, browser.log_in(provider), "its token's signature is wrong", 401)
    provider.key = RSAKey.generate_key(2048, {"kid": "unknown"})
    refused(browser, browser.log_in(provider), "no key that is known here", 401)
    provider.key, provider.algorithm = published, "RS512"
    refused(browser, browser.log_in(provider), "not taken here ('RS512')", 401)
    provider.key, provider.algorithm = ECKey.generate_key("P-256", {"kid": "two"}), "ES256"
    provider.published = [provider.key.as_dict(private=False)]
    assert browser.log_in(provider).status_code == 303


def test_keys_are_kept_and_fetched_anew_when_they_change(browser: Browser, provider: OidcProvider) -> None:
    for _ in range(3):
        assert browser.log_in(provider).status_code == 303
    assert sum(each.startswith("keys") for each in provider.asked) == 1
    assert sum(each.startswith("openid-configuration") for each in provider.asked) == 1
    provider.rotate()
    assert browser.log_in(provider).status_code == 303
    assert sum(each.startswith("keys") for each in provider.asked) == 2


DISCOVERY = "openid-configuration"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PlainTextResponse("down", 503), "the answer has the status 503"),
        (PlainTextResponse("<html>"), "the response is not JSON"),
        (JSONResponse(["a"]), "the response is not a JSON object"),
        (PlainTextResponse('{"a":' * 100_000), "the response is not JSON"),
        (PlainTextResponse("x" * 2_000_000), "the answer is longer than 1048576 bytes"),
        (RedirectResponse("http://127.0.0.1:1/"), "the answer has the status 307"),
        (JSONResponse({"issuer": "https://evil.example"}), "its issuer is 'https://evil.example'"),
    ],
)
def test_a_provider_that_talks_nonsense_is_said_to(
    browser: Browser, provider: OidcProvider, answer: Response, said: str
) -> None:
    provider.answers[DISCOVERY] = answer
    begun = browser.try_begin()
    assert (begun.status_code, begun.json()["code"]) == (502, "PROVIDER_FAILED")
    assert said in begun.json()["error"]
    del provider.answers[DISCOVERY]
    assert browser.log_in(provider).status_code == 303  # as soon as it is well again


@pytest.mark.parametrize(
    ("offers", "said"),
    [
        ({"token_endpoint": None}, "it has no token_endpoint"),
        ({"jwks_uri": "http://10.0.0.1/keys"}, "its jwks_uri does not use TLS"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "its authorization_endpoint is not a valid URL"),
        ({"end_session_endpoint": "http://evil.example/"}, "its end_session_endpoint does not use TLS"),
        ({"code_challenge_methods_supported": ["plain"]}, "it does not support PKCE with S256"),
    ],
)
def test_what_a_provider_offers_is_looked_at(
    browser: Browser, provider: OidcProvider, offers: dict[str, Any], said: str
) -> None:
    provider.offers = offers
    assert said in browser.try_begin().json()["error"]


def test_a_provider_that_hangs_holds_up_nobody_for_long(
    browser: Browser, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.hangs = {DISCOVERY, "token", "keys"}
    with monkeypatch.context() as soon:
        soon.setattr(jwks, "_FETCH_TIMEOUT_S", 0.5)
        assert "cannot use the login provider " in browser.try_begin().json()["error"]
    assert browser.session()["user"] is None  # the console itself goes on
    provider.hangs.remove(DISCOVERY)
    query = browser.visit(browser.begin(), provider)
    with monkeypatch.context() as soon:
        soon.setattr(jwks, "_FETCH_TIMEOUT_S", 0.5)
        refused(browser, browser.come_back(query), "rejected the login's code", 502)
    provider.hangs.remove("token")
    query = browser.visit(browser.begin(), provider)
    with monkeypatch.context() as soon:
        # Long enough for the code, which is answered.
        soon.setattr(jwks, "_FETCH_TIMEOUT_S", 3.0)
        refused(browser, browser.come_back(query), "no key that is known here", 401)
    provider.hangs.remove("keys")
    assert browser.log_in(provider).status_code == 303


def test_a_provider_that_has_gone_is_named(cluster: LocalBroker, tmp_path: Path) -> None:
    with OidcProvider() as provider:
        login = LoginSettings("main", scram=False, oidc=settings_for(provider))
    settings = console_settings(tmp_path, cluster.bootstrap_servers, login=login)
    with ConsoleThread(settings) as console:
        said = Browser(console).try_begin().json()["error"]
    assert f"cannot use the login provider {provider.issuer}: " in said


def test_a_wrong_secret_is_said_to_be_looked_at(browser: Browser, provider: OidcProvider) -> None:
    provider.secret = "another"
    refused(browser, browser.log_in(provider), "compare client_id, client_secret and redirect_url", 502)
    assert "another" not in provider.asked[-1]


def test_a_client_without_a_secret_proves_itself_by_pkce(cluster: LocalBroker, tmp_path: Path) -> None:
    with OidcProvider(secret=None) as provider:
        login = LoginSettings("main", scram=False, oidc=settings_for(provider, client_secret=None))
        settings = console_settings(tmp_path, cluster.bootstrap_servers, login=login, grants=GRANTS)
        with ConsoleThread(settings) as console:
            browser = Browser(console)
            assert browser.log_in(provider).status_code == 303
            assert browser.session()["user"] == "alice"


def test_an_address_names_somebody_only_where_it_was_verified(
    cluster: LocalBroker, provider: OidcProvider, tmp_path: Path
) -> None:
    login = LoginSettings("main", scram=False, oidc=settings_for(provider, user_claim="email"))
    settings = console_settings(tmp_path, cluster.bootstrap_servers, login=login)
    with ConsoleThread(settings) as console:
        browser = Browser(console)
        provider.claims = lambda claims: claims.update(email="root@example.org")
        refused(browser, browser.log_in(provider), "is not verified (email_verified)", 401)
        provider.claims = lambda claims: claims.update(email="a@example.org", email_verified=True)
        browser.log_in(provider)
        assert browser.session()["user"] == "a@example.org"


def test_a_provider_is_trusted_by_the_authority_of_the_file(cluster: LocalBroker, tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    with OidcProvider(tls=files.server) as provider:
        for trusted, ca_file in ((True, files.trust), (False, None)):
            oidc_ = settings_for(provider, ca_file=ca_file)
            settings = console_settings(
                tmp_path / str(trusted),
                cluster.bootstrap_servers,
                login=LoginSettings("main", scram=False, oidc=oidc_),
                grants=GRANTS,
            )
            with ConsoleThread(settings) as console:
                begun = Browser(console).try_begin()
                assert (begun.status_code == 200) is trusted, begun.text
                if not trusted:
                    assert "certificate" in begun.json()["error"].lower()


def test_behind_tls_cookies_are_for_tls_alone(
    cluster: LocalBroker, provider: OidcProvider, tmp_path: Path
) -> None:
    login = LoginSettings("main", scram=False, oidc=settings_for(provider))
    settings = console_settings(
        tmp_path, cluster.bootstrap_servers, login=login, listen=Listen("127.0.0.1", 0, behind_tls=True)
    )
    with ConsoleThread(settings) as console:
        browser = Browser(console)
        first = browser.http.get("/api/session")
        browser.token = first.json()["token"]
        cookie = first.headers["set-cookie"].partition(";")[0]
        begun = browser.http.post(
            "/api/session/provider", json={}, headers={"X-Console-Token": browser.token, "Cookie": cookie}
        )
        login_cookie = begun.headers["set-cookie"].partition(";")[0]
        answer = browser.come_back(browser.visit(begun.json()["url"], provider), Cookie=login_cookie)
        assert answer.status_code == 303
        for each in (first, begun, answer):
            assert all("Secure" in text for text in each.headers.get_list("set-cookie"))
