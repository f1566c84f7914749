"""Where the login provider sends browsers back to: a new session begins, or a page says why not.

The answer is a redirection to our own page, so that the code is in no address that stays. A login that fails
touches no cookie: another site may send browsers here, and shall log nobody out by it, nor end his login.
"""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tidelog.console.auth.audit import LOGIN, AuditEntry, now_ms
from tidelog.console.auth.oidc import Answer, Finished, OidcLogin
from tidelog.console.auth.person import Account
from tidelog.console.refusal import Refusal, refusal_of
from tidelog.console.requests import set_login_cookie, set_session_cookie
from tidelog.console.service import Console
from tidelog.console.settings import OIDC_PATH, Way

_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>Tidelog</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/static/style.css">
<script type="module" src="/static/theme.js"></script></head>
<body><main class="login"><section class="card"><div class="body stack"><h1>{title}</h1>
<div class="refusal" role="alert">{text}</div>
<p><a href="/">{back}</a></p></div></section></main></body></html>
"""
_WORDS = {
    "en": ("The login failed", "Back to the console"),
    "zh": ("登录失败", "返回控制台"),
}
_NOT_OURS = (400, 403)
"""The statuses of what belongs to no login of ours; the audit log is not for whoever likes to write to it."""
_ONCE = ("state", "code", "iss", "error")


def login_routes(console: Console) -> list[Route]:
    """The route, where there is a provider."""
    oidc = console.oidc
    if oidc is None:
        return []

    async def come_back(request: Request) -> Response:
        return await _come_back(console, oidc, request)

    return [Route(OIDC_PATH, come_back, methods=["GET"])]


async def _come_back(console: Console, oidc: OidcLogin, request: Request) -> Response:
    try:
        finished = await _finished(console, oidc, request)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal.status not in _NOT_OURS:
            console.audit.note_failed_login(_entry(request, "", str(refusal)))
        return _page(request, refusal)
    identity = finished.identity
    person = console.named(Account(identity.user, Way.OIDC, identity.groups))
    console.sessions.end_by_id(finished.session_id)
    session = console.sessions.begin(person, oidc.logout_url())
    console.audit.note(_entry(request, person.name, "done"))
    response: Response = RedirectResponse(
        f"/static/index.html{finished.place}", 303, headers={"Cache-Control": "no-store"}
    )
    set_session_cookie(response, session, console)
    set_login_cookie(response, None, console)
    return response


async def _finished(console: Console, oidc: OidcLogin, request: Request) -> Finished:
    if request.headers.get("sec-fetch-mode", "navigate") != "navigate":
        raise Refusal("the login callback must be opened as a top-level page", 403, "FORBIDDEN")
    query = request.query_params
    if any(len(query.getlist(each)) > 1 for each in _ONCE):
        raise Refusal("the login provider's response repeats a parameter", 400, "LOGIN_FAILED")
    answer = Answer(
        query.get("state", ""), query.get("code", ""), query.get("iss"), _shown_error(query.get("error", ""))
    )
    return await oidc.finish(request.cookies.get(console.login_cookie), answer)


def _shown_error(word: str) -> str:
    """A provider's error is a word; whatever else stands in the address is not shown as its saying."""
    return word if not word or word.replace("_", "").isalnum() else "an invalid error code"


def _entry(request: Request, user: str, outcome: str) -> AuditEntry:
    address = request.client.host if request.client else ""
    return AuditEntry(now_ms(), user, address, "", LOGIN, "", outcome, {"login": "oidc"})


def _page(request: Request, refusal: Refusal) -> HTMLResponse:
    language = "zh" if request.headers.get("accept-language", "").lower().startswith("zh") else "en"
    title, back = _WORDS[language]
    page = _PAGE.format(language=language, title=title, back=back, text=escape(str(refusal)))
    return HTMLResponse(page, refusal.status, {"Cache-Control": "no-store"})
