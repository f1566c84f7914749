"""Logging in at a provider in a real browser: there and back, a token for an assistant, out again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.oidc_browser import settings_for
from tests.rigs.oidc_provider import OidcProvider

from tidelog.console.settings import Grant, LoginSettings, McpSettings, Role, Way
from tidelog.testing import LocalBroker, broker

pytestmark = needs_chromium


@pytest.fixture
def cluster() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 1}) as running:
        yield running


def test_somebody_logs_in_at_the_provider_makes_a_token_and_logs_out(
    page: Page, cluster: LocalBroker, tmp_path: Path
) -> None:
    # Another site than 127.0.0.1: cookies have to find their way from there.
    with OidcProvider(host="localhost") as provider:
        settings = console_settings(
            tmp_path,
            cluster.bootstrap_servers,
            login=LoginSettings("main", oidc=settings_for(provider)),
            grants=(Grant("alice", Role.OPERATOR, way=Way.OIDC),),
            mcp=McpSettings(),
        )
        with ConsoleThread(settings) as console:
            provider.console_url = console.url
            _check_refused(page, console, provider)
            _check_logged_in(page, console)
            token = _check_token(page, console)
            _check_logged_out(page, provider)
            # The token is not of the session.
            asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers = {"Authorization": f"Bearer {token}"}
            assert httpx.post(f"{console.url}/mcp", json=asked, headers=headers).status_code == 200


def _check_refused(page: Page, console: ConsoleThread, provider: OidcProvider) -> None:
    """Both ways are offered, in both languages; a login that fails says why, and leads back."""
    page.goto(f"{console.url}/static/index.html#/main/topics/orders")
    expect(page.get_by_label("Password")).to_be_visible()
    page.get_by_label("Language").select_option("zh")
    expect(page.get_by_role("button", name="使用 Example 登录")).to_be_visible()
    page.get_by_role("combobox").select_option("en")
    provider.claims = lambda claims: claims.update(aud="somebody else")
    page.get_by_role("button", name="Log in with Example").click()
    expect(page.get_by_role("alert")).to_contain_text("for another audience (aud)")
    provider.claims = lambda claims: None
    page.get_by_role("link", name="Back to the console").click()


def _check_logged_in(page: Page, console: ConsoleThread) -> None:
    page.goto(f"{console.url}/static/index.html#/main/topics/orders")
    page.get_by_role("button", name="Log in with Example").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
    expect(page.get_by_text("oidc:alice")).to_be_visible()
    assert page.url == f"{console.url}/static/index.html#/main/topics/orders"
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert re.fullmatch(r'\[\{("language":"en")?\},\{\},""\]', kept), kept
    cookies = {each["name"]: each for each in page.context.cookies()}
    (session,) = cookies.values()
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")
    page.reload()
    expect(page.get_by_text("oidc:alice")).to_be_visible()


def _check_token(page: Page, console: ConsoleThread) -> str:
    page.goto(f"{console.url}/static/index.html#/main/tokens")
    expect(page.get_by_text("No tokens")).to_be_visible()
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill("my assistant")
    dialog.get_by_role("button", name="Create token").click()
    made = dialog.get_by_role("textbox", name="Token")
    expect(made).to_be_visible()
    token = made.input_value()
    assert token.startswith("tlc_")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("cell", name="my assistant")).to_be_visible()
    assert token not in page.content()
    return token


def _check_logged_out(page: Page, provider: OidcProvider) -> None:
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in with Example")).to_be_visible()
    assert any(each.startswith("logout ") for each in provider.asked)
