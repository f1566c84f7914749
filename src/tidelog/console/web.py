"""The console for a browser: routes, the checks that every request passes, the pages.

A request is judged before anything is done: the name it was sent to (a page elsewhere may point its own name
at us), its session, its token and origin where it changes something, its size, and then the role that the
endpoint needs. Every answer has headers that keep other sites from framing us and scripts from running that
are not our own files.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.console.api import (
    acls_api,
    audit_api,
    delegation_tokens_api,
    explain_api,
    groups_api,
    messages_api,
    overview_api,
    partitions_api,
    quotas_api,
    session_api,
    spark_api,
    telemetry_api,
    tokens_api,
    topics_api,
    topology_api,
    transactions_api,
    users_api,
)
from tidelog.console.api.calling import note, perform, require_right
from tidelog.console.api.endpoint import Call, Endpoint
from tidelog.console.api.event_stream import EventStream
from tidelog.console.api.openapi import openapi
from tidelog.console.api.session_api import LoginBegun, SessionChange
from tidelog.console.auth.person import ANONYMOUS_PERSON
from tidelog.console.auth.sessions import TOKEN_HEADER, Session
from tidelog.console.extension import installed_pages
from tidelog.console.login_pages import login_routes
from tidelog.console.refusal import Refusal, forbidden, refusal_of
from tidelog.console.requests import body_of, set_login_cookie, set_session_cookie, unless_hung_up
from tidelog.console.service import Console
from tidelog.console.settings import Listen
from tidelog.decode_errors import DECODE_ERRORS

logger = logging.getLogger(__name__)

ENDPOINTS: tuple[Endpoint, ...] = (
    *session_api.ENDPOINTS,
    *overview_api.ENDPOINTS,
    *topics_api.ENDPOINTS,
    *partitions_api.ENDPOINTS,
    *messages_api.ENDPOINTS,
    *groups_api.ENDPOINTS,
    *spark_api.ENDPOINTS,
    *topology_api.ENDPOINTS,
    *transactions_api.ENDPOINTS,
    *acls_api.ENDPOINTS,
    *users_api.ENDPOINTS,
    *quotas_api.ENDPOINTS,
    *audit_api.ENDPOINTS,
    *explain_api.ENDPOINTS,
    *delegation_tokens_api.ENDPOINTS,
    *tokens_api.ENDPOINTS,
    *telemetry_api.ENDPOINTS,
)
_BODY_BYTES = 12 * 1024 * 1024
_ANONYMOUS_BODY_BYTES = 64 * 1024
_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def all_endpoints() -> tuple[Endpoint, ...]:
    """Our endpoints, and those that installed packages add."""
    return (*ENDPOINTS, *(each for page in installed_pages().values() for each in page.endpoints))


def application(console: Console) -> Starlette:
    """The web application, which starts and ends the console."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        console.start()
        try:
            yield
        finally:
            await console.close()

    endpoints = all_endpoints()
    document = openapi(endpoints)

    async def describe(request: Request) -> Response:
        return _json(document)

    async def begin(request: Request) -> Response:
        return RedirectResponse("/static/index.html")

    app = Starlette(
        routes=[
            Route("/", begin),
            Route("/api/openapi.json", describe),
            *(_route(each) for each in endpoints),
            *login_routes(console),
            *_mcp_routes(console),
            *(
                Mount(f"/pages/{name}", StaticFiles(directory=str(page.script.parent)))
                for name, page in installed_pages().items()
                if page.script is not None
            ),
            Mount("/static", StaticFiles(directory=str(files("tidelog.console") / "static"))),
        ],
        middleware=[Middleware(_Guard)],
        lifespan=life,
    )
    app.state.console = console
    return app


def _mcp_routes(console: Console) -> list[Route]:
    if console.settings.mcp is None:
        return []
    # Not loaded where nobody wants it.
    from tidelog.console.mcp.serving import mcp_routes

    return mcp_routes(console)


class _Guard:
    """Checks the host of every request, and sends the security headers with every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/api/"):
            # Groups may have slashes in their names: a path is taken apart before it is decoded.
            scope["path"] = scope["raw_path"].decode("latin-1")
        listen: Listen = scope["app"].state.console.settings.listen
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = dict(_SECURITY_HEADERS)
                if scope["path"].startswith("/static/"):
                    # Asked again each time, and answered with 304: a new release shows at once.
                    more["Cache-Control"] = "no-cache"
                if listen.is_https:
                    more["Strict-Transport-Security"] = "max-age=31536000"
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in more.items()),
                ]
            await send(message)

        if not is_known_host(headers.get("host", ""), listen):
            answer = _refused(
                Refusal(
                    f"the console does not serve the host name {headers.get('host', '')[:200]!r}: "
                    "start it with --allowed-host NAME",
                    421,
                    "UNKNOWN_HOST",
                )
            )
            await answer(scope, receive, send_safely)
            return
        if "content-length" in headers and "transfer-encoding" in headers:
            # Two lengths: a proxy before us may see another end of the request than we do.
            answer = _refused(Refusal("a request must have either Content-Length or chunks, not both"))
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)


def is_known_host(header: str, listen: Listen) -> bool:
    """Whether a request was sent to an address or to a name of ours; foreign names may be a trick of DNS."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
    host = host.strip("[]").lower().rstrip(".")
    if host in ("localhost", listen.host.lower(), *(each.lower() for each in listen.allowed_hosts)):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _route(endpoint: Endpoint) -> Route:
    async def serve(request: Request) -> Response:
        return await _serve(endpoint, request)

    return Route(f"/api{endpoint.path}", serve, methods=[endpoint.method])


async def _serve(endpoint: Endpoint, request: Request) -> Response:
    console: Console = request.app.state.console
    session = console.sessions.find(request.cookies.get(console.cookie))
    if session is None:
        session = console.sessions.anonymous_session()
    call = Call(
        console,
        session,
        console.person(session) or ANONYMOUS_PERSON,
        request.client.host if request.client else "",
        {name: unquote(value) for name, value in request.path_params.items()},
    )
    try:
        work = _answer(endpoint, request, call)
        answer = await (work if endpoint.action else unless_hung_up(request, work))
        response = answer if isinstance(answer, Response) else _json(_body_of(answer))
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:
        answer, response = None, _refused(refusal_of(error))
    if isinstance(answer, SessionChange):
        set_session_cookie(response, answer.session, console)
    elif isinstance(answer, LoginBegun):
        set_login_cookie(response, answer.login_id, console)
    if isinstance(response, EventStream) and console.has_logins:
        response.body_iterator = _while_logged_in(response.body_iterator, console, session)
    return response


def _body_of(answer: object) -> object:
    return answer.body if isinstance(answer, SessionChange | LoginBegun) else answer


async def _while_logged_in(
    events: AsyncIterable[str | bytes | memoryview], console: Console, session: Session
) -> AsyncIterator[str | bytes | memoryview]:
    """A stream that ends with the session that it was asked for in."""
    async for each in events:
        if console.sessions.find(session.id) is None:
            break
        yield each
    if isinstance(events, AsyncGenerator):
        await events.aclose()


async def _answer(endpoint: Endpoint, request: Request, call: Call) -> object:
    """What an endpoint gives; a change that does not even reach it is noted, too, of those whom we know."""
    try:
        # Browsers say where a request comes from: pages of others must not even make us read.
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise forbidden("this request comes from another site")
        if endpoint.action:
            _require_own_page(request, call.session)
        # Who may not call it is told that, and not what is wrong with what he sent.
        require_right(endpoint, call)
        most_bytes = _ANONYMOUS_BODY_BYTES if call.person is ANONYMOUS_PERSON else _BODY_BYTES
        asked = await _asked(endpoint, request, most_bytes)
    except Refusal as refusal:
        # Whoever shows no session of ours, or has not logged in, has changed nothing and has no name.
        is_known = call.console.sessions.find(call.session.id) is not None
        if is_known and call.person is not ANONYMOUS_PERSON:
            note(endpoint, call, str(refusal))
        raise
    return await perform(endpoint, call, asked)


def _require_own_page(request: Request, session: Session) -> None:
    """Only our own pages, and programs that have asked for a token, change anything."""
    if request.headers.get(TOKEN_HEADER) != session.token:
        raise forbidden("the session token is missing or outdated: reload the page")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise forbidden("this request comes from another site")


async def _asked(endpoint: Endpoint, request: Request, most_bytes: int) -> msgspec.Struct:
    try:
        if endpoint.method == "GET":
            return msgspec.convert(dict(request.query_params), endpoint.asked, strict=False)
        body = await body_of(request, most_bytes)
        return msgspec.json.decode(body or b"{}", type=endpoint.asked)
    except DECODE_ERRORS as error:
        raise Refusal(f"Invalid request: {error}") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value), status, {"Cache-Control": "no-store"}, "application/json; charset=utf-8"
    )


def _refused(refusal: Refusal) -> Response:
    return _json({"error": str(refusal), "code": refusal.code}, refusal.status)
