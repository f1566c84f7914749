"""The console for a browser: routes, the checks that every request passes, the pages.

A request is judged before anything is done: the name it was sent to (a page elsewhere may point its own name
at us), its session, its token and origin where it changes something, its size, and then the role that the
endpoint needs. Every answer has headers that keep other sites from framing us and scripts from running that
are not our own files.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import AsyncIterator
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
    access_api,
    groups_api,
    messages_api,
    overview_api,
    session_api,
    spark_api,
    topics_api,
)
from tidelog.console.api.endpoint import Call, Endpoint
from tidelog.console.api.openapi import openapi
from tidelog.console.api.session_api import SessionChange
from tidelog.console.people.audit import AuditEntry, now_ms
from tidelog.console.people.sessions import TOKEN_HEADER, Session
from tidelog.console.refusal import Refusal, forbidden, refusal_of
from tidelog.console.service import Console
from tidelog.console.settings import Listen, Role

logger = logging.getLogger(__name__)

ENDPOINTS: tuple[Endpoint, ...] = (
    *session_api.ENDPOINTS,
    *overview_api.ENDPOINTS,
    *topics_api.ENDPOINTS,
    *messages_api.ENDPOINTS,
    *groups_api.ENDPOINTS,
    *spark_api.ENDPOINTS,
    *access_api.ENDPOINTS,
)
_BODY_BYTES = 12 * 1024 * 1024
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


def application(console: Console) -> Starlette:
    """The web application, which starts and ends the console."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        console.start()
        try:
            yield
        finally:
            await console.close()

    document = openapi(ENDPOINTS)

    async def describe(request: Request) -> Response:
        return _json(document)

    async def begin(request: Request) -> Response:
        return RedirectResponse("/static/index.html")

    app = Starlette(
        routes=[
            Route("/", begin),
            Route("/api/openapi.json", describe),
            *(_route(each) for each in ENDPOINTS),
            Mount("/static", StaticFiles(directory=str(files("tidelog.console") / "static"))),
        ],
        middleware=[Middleware(_Guard)],
        lifespan=life,
    )
    app.state.console = console
    return app


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
                    f"the console does not answer to the name {headers.get('host', '')[:200]!r}: "
                    "start it with --allowed-host NAME",
                    421,
                    "UNKNOWN_HOST",
                )
            )
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
    is_new = session is None
    if session is None:
        session = console.sessions.begin(None)
    call = Call(
        console,
        session,
        console.person(session) or console.named(""),
        request.client.host if request.client else "",
        {name: unquote(value) for name, value in request.path_params.items()},
    )
    try:
        answer = await _answer(endpoint, request, call)
        if endpoint.action:
            _note(endpoint, call, "done")
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:
        refusal = refusal_of(error)
        if endpoint.action:
            _note(endpoint, call, str(refusal))
        answer = _refused(refusal)
    if isinstance(answer, SessionChange):
        response = _json(answer.body)
        _set_cookie(response, answer.session, console)
        return response
    response = answer if isinstance(answer, Response) else _json(answer)
    if is_new and endpoint.path == "/session":
        _set_cookie(response, session, console)
    elif is_new:
        console.sessions.end(session)
    return response


async def _answer(endpoint: Endpoint, request: Request, call: Call) -> object:
    # Browsers say where a request comes from: pages of others must not even make us read.
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise forbidden("this request comes from a page of another site")
    if endpoint.action:
        _require_own_page(request, call.session)
    if endpoint.role > Role.NONE and call.console.person(call.session) is None:
        raise Refusal("log in first", 401, "LOGIN_NEEDED")
    if "cluster" in call.path:
        if call.person.role(call.path["cluster"]) < Role.VIEWER:
            raise forbidden(f"{call.person.name} may see nothing of cluster {call.path['cluster']}")
        call.watched = call.console.cluster(call.path["cluster"])
        call.require(endpoint.role, call.path.get("topic"))
    return await endpoint.handle(call, await _asked(endpoint, request))


def _require_own_page(request: Request, session: Session) -> None:
    """Only our own pages, and programs that have asked for a token, change anything."""
    if request.headers.get(TOKEN_HEADER) != session.token:
        raise forbidden("the session's token is missing or has changed: load the page again")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise forbidden("this request comes from a page of another site")


async def _asked(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    try:
        if endpoint.method == "GET":
            return msgspec.convert(dict(request.query_params), endpoint.asked, strict=False)
        body = await _body(request)
        return msgspec.json.decode(body or b"{}", type=endpoint.asked)
    except msgspec.MsgspecError as error:
        raise Refusal(f"the request is not as it should be: {error}") from None


async def _body(request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > _BODY_BYTES:
            raise Refusal(f"a request has {_BODY_BYTES} bytes at most", 413, "TOO_LARGE")
        pieces.append(piece)
    return b"".join(pieces)


def _note(endpoint: Endpoint, call: Call, outcome: str) -> None:
    target = next((call.path[each] for each in ("topic", "group", "broker", "id") if each in call.path), "")
    call.console.audit.note(
        AuditEntry(
            now_ms(),
            call.person.name,
            call.address,
            call.path.get("cluster", ""),
            endpoint.action,
            target or str(call.details.get("topic", "")),
            outcome,
            call.details,
        )
    )


def _set_cookie(response: Response, session: Session | None, console: Console) -> None:
    secure = console.settings.listen.is_https
    if session is None:
        response.delete_cookie(console.cookie, httponly=True, samesite="strict", secure=secure)
    else:
        response.set_cookie(console.cookie, session.id, httponly=True, samesite="strict", secure=secure)


def _json(value: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value), status, {"Cache-Control": "no-store"}, "application/json; charset=utf-8"
    )


def _refused(refusal: Refusal) -> Response:
    return _json({"error": str(refusal), "code": refusal.code}, refusal.status)
