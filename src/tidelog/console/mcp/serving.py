"""The route of the endpoint for assistants: who calls, within which bounds.

Where people log in, a call brings a bearer token in its header: a personal one, made in the console, or an
access token of the login provider for this audience. Cookies count for nothing, so that no page can call in
somebody's name; requests that a browser sends for another site are refused, as for the rest of the
console is the name that they were sent to (``web``). No session is kept; so many calls run at once.
A call that only reads is ended when it takes too long or nobody waits for it; one that changes something
goes on, and its answer says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidelog.console.auth.person import ANONYMOUS_PERSON, Account, Person
from tidelog.console.auth.sessions import Session
from tidelog.console.auth.tokens import PREFIX
from tidelog.console.mcp import protocol
from tidelog.console.mcp.protocol import McpError, Message
from tidelog.console.mcp.tools import Tool, tools_for
from tidelog.console.refusal import Refusal, forbidden, refusal_of
from tidelog.console.requests import body_of, unless_hung_up
from tidelog.console.service import Console
from tidelog.console.settings import McpSettings, Way

MCP_PATH = "/mcp"
BODY_BYTES = 1024 * 1024
CALL_S = 60.0
AT_ONCE = 16
AT_ONCE_EACH = 4
_METADATA_PATH = "/.well-known/oauth-protected-resource"
_NO_STORE = {"Cache-Control": "no-store"}
_UNAUTHORIZED = 401
_BUSY = 429


@dataclass(slots=True)
class _Caller:
    """Who calls: the person, and what the audit log says of the way."""

    person: Person
    through: dict[str, str] = field(default_factory=lambda: {"through": "mcp"})


class _Calls:
    """Counts what runs, so that nobody takes all of the console."""

    def __init__(self) -> None:
        self._by_name: Counter[str] = Counter()

    @contextmanager
    def one_more(self, name: str) -> Iterator[None]:
        """Raises a refusal where there are enough already."""
        if self._by_name.total() >= AT_ONCE or self._by_name[name] >= AT_ONCE_EACH:
            raise Refusal(
                f"too many concurrent calls (limits: {AT_ONCE_EACH} per user, {AT_ONCE} in total): "
                "wait for a call to finish",
                _BUSY,
                "BUSY",
            )
        self._by_name[name] += 1
        try:
            yield
        finally:
            self._ended(name)

    def count_until_done(self, name: str, work: asyncio.Future[str]) -> None:
        """What goes on when its call was answered runs, too."""
        self._by_name[name] += 1
        work.add_done_callback(lambda _: self._ended(name))

    def _ended(self, name: str) -> None:
        self._by_name[name] -= 1
        if not self._by_name[name]:
            del self._by_name[name]


def mcp_routes(console: Console) -> list[Route]:
    """The endpoint, and what says to clients where to get tokens for it."""
    settings = console.settings.mcp
    assert settings is not None
    endpoint = _McpEndpoint(console, settings)
    routes = [Route(MCP_PATH, endpoint.serve, methods=["POST"])]
    if settings.audience:
        routes += [
            Route(path, endpoint.metadata, methods=["GET"])
            for path in (_METADATA_PATH, f"{_METADATA_PATH}{MCP_PATH}")
        ]
    return routes


class _McpEndpoint:
    def __init__(self, console: Console, settings: McpSettings) -> None:
        self._console = console
        self._settings = settings
        self._calls = _Calls()

    async def metadata(self, request: Request) -> Response:
        """Who gives access tokens for this endpoint (RFC 9728)."""
        login = self._console.settings.login
        assert login is not None
        assert login.oidc is not None
        told = {
            "resource": f"{self._origin()}{MCP_PATH}",
            "authorization_servers": [login.oidc.issuer],
            "bearer_methods_supported": ["header"],
        }
        return JSONResponse(told, headers=_NO_STORE)

    async def serve(self, request: Request) -> Response:
        """Answer one message."""
        modern = False
        message = Message("")
        try:
            _require_no_browser_of_others(request)
            _require_json(request)
            caller = await self._caller(request)
            message = protocol.read_message(await body_of(request, BODY_BYTES))
            modern = protocol.check_version(message, request.headers)
            if message.is_notification:
                return Response(status_code=202)
            with self._calls.one_more(caller.person.name):
                body = await self._answer(message, caller, request, modern=modern)
            return _json(protocol.result(message, body, modern=modern))
        except McpError as error:
            if error.request_id is None:
                error.request_id = message.id
            return _json(protocol.failure(error), protocol.status_of(error, modern=modern))
        except Exception as error:
            return self._refused(refusal_of(error), message)

    async def _answer(
        self, message: Message, caller: _Caller, request: Request, *, modern: bool
    ) -> dict[str, object]:
        match message.method:
            case "server/discover" if modern:
                return protocol.discovered()
            case "initialize" if not modern:
                return protocol.initialized(message.params)
            case "ping" if not modern:
                return {}
            case "tools/list":
                tools = tools_for(self._console, caller.person).values()
                return protocol.listed([each.described() for each in tools], modern=modern)
            case "tools/call":
                return await self._call(message, caller, request)
        raise McpError(protocol.METHOD_NOT_FOUND, f"unknown method {message.method[:100]!r}")

    async def _call(self, message: Message, caller: _Caller, request: Request) -> dict[str, object]:
        name, given = message.params.get("name"), message.params.get("arguments")
        tool = tools_for(self._console, caller.person).get(name) if isinstance(name, str) else None
        if tool is None:
            raise McpError(
                protocol.INVALID_PARAMS, f"tool {str(name)[:100]!r} does not exist, or you may not use it"
            )
        if not isinstance(given, dict | None):
            raise McpError(protocol.INVALID_PARAMS, "arguments is not an object")
        address = request.client.host if request.client else ""
        working = tool.call(self._console, caller.person, address, given or {}, caller.through)
        try:
            if tool.changes:
                text = await self._not_cut_off(tool, caller, working)
            else:
                async with asyncio.timeout(CALL_S):
                    text = await unless_hung_up(request, working)
        except TimeoutError:
            return _content(
                f"{tool.name} took longer than {CALL_S:.0f} s and was cancelled: request less data", True
            )
        except Refusal as refusal:
            # For the assistant to read: it may ask again, and better.
            return _content(str(refusal), True)
        return _content(text, False)

    async def _not_cut_off(self, tool: Tool, caller: _Caller, working: Coroutine[object, object, str]) -> str:
        """What comes of a change in time; it goes on otherwise, and when somebody hangs up.

        Half of it may be done by then, by threads and brokers that nobody can call back; what it came to is
        in the audit log.
        """
        work = asyncio.ensure_future(working)
        try:
            await asyncio.wait({work}, timeout=CALL_S)
        finally:
            if not work.done():
                self._calls.count_until_done(caller.person.name, work)
                self._console.finish(work)
        if not work.done():
            raise Refusal(
                f"{tool.name} has taken longer than {CALL_S:.0f} s and is still running. The change "
                "may or may not have been made. Check its effect before you retry, or it may be made "
                "twice"
            )
        return work.result()

    async def _caller(self, request: Request) -> _Caller:
        console = self._console
        if not console.has_logins:
            person = console.person(Session("", "", None, 0.0))
            return _Caller(person or ANONYMOUS_PERSON)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Refusal(
                "a token is required: send Authorization: Bearer …, with a token created on the Tokens page",
                _UNAUTHORIZED,
                "LOGIN_NEEDED",
            )
        if token.startswith(PREFIX) and console.tokens is not None:
            found = console.tokens.find(token)
            if found is None:
                raise _unknown_token()
            account = Account(found.user, found.way, frozenset(found.groups))
            person = console.named(account, read_only=found.read_only)
            return _Caller(person, {"through": "mcp", "token": found.id})
        if console.oidc is None or not self._settings.audience:
            raise _unknown_token()
        try:
            identity = await console.oidc.bearer(token, self._settings.audience)
        except Refusal as refusal:
            raise _unknown_token() if refusal.status == _UNAUTHORIZED else refusal from None
        return _Caller(console.named(Account(identity.user, Way.OIDC, identity.groups)))

    def _refused(self, refusal: Refusal, message: Message) -> Response:
        error = McpError(protocol.REFUSED, str(refusal), {"code": refusal.code}, message.id)
        response = _json(protocol.failure(error), refusal.status)
        if refusal.status == _UNAUTHORIZED:
            where = f' resource_metadata="{self._origin()}{_METADATA_PATH}{MCP_PATH}"'
            response.headers["WWW-Authenticate"] = f"Bearer{where if self._settings.audience else ''}"
        if refusal.status == _BUSY:
            response.headers["Retry-After"] = "1"
        return response

    def _origin(self) -> str:
        parts = urlsplit(self._console.settings.oidc_redirect_url)
        return f"{parts.scheme}://{parts.netloc}"


def _unknown_token() -> Refusal:
    return Refusal("this token is unknown, revoked or expired", _UNAUTHORIZED, "LOGIN_FAILED")


def _require_no_browser_of_others(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise forbidden("this request comes from another site")
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise forbidden("this request comes from another site")


def _require_json(request: Request) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal("the Content-Type of a message must be application/json", 415, "NOT_JSON")
    accepted = request.headers.get("accept", "*/*")
    if not any(each in accepted for each in ("application/json", "application/*", "*/*")):
        raise Refusal("the Accept header must allow application/json", 406, "NOT_ACCEPTED")


def _content(text: str, is_error: bool) -> dict[str, object]:
    return {
        "content": [{"type": "text", "text": text}],
        "isError": is_error,
        "_meta": {"tidelog/untrusted": True},
    }


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, _NO_STORE, "application/json")
