"""What several entrances of the console do with a request: read its body within a bound, set its cookies, end
what nobody waits for any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tidelog.console.auth.oidc import PATIENCE_S
from tidelog.console.auth.sessions import Session
from tidelog.console.refusal import Refusal
from tidelog.console.service import Console
from tidelog.console.settings import OIDC_PATH

T = TypeVar("T")


async def body_of(request: Request, most_bytes: int) -> bytes:
    """The body; raises a refusal for a longer one, before it is read."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most_bytes:
            raise Refusal(f"a request may have at most {most_bytes} bytes", 413, "TOO_LARGE")
        pieces.append(piece)
    return b"".join(pieces)


async def unless_hung_up(request: Request, working: Coroutine[object, object, T]) -> T:
    """What comes of ``working``, which only reads; whoever hangs up ends it."""
    work, hung_up = asyncio.ensure_future(working), asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({work, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Refusal("the client disconnected", 400, "HUNG_UP")
        return work.result()
    finally:
        work.cancel()
        hung_up.cancel()
        await asyncio.gather(work, hung_up, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # the rest of a body that was read


def set_session_cookie(response: Response, session: Session | None, console: Console) -> None:
    """The session's cookie, or the end of it."""
    secure = console.settings.listen.is_https
    if session is None:
        response.delete_cookie(console.cookie, httponly=True, samesite="strict", secure=secure)
    else:
        response.set_cookie(console.cookie, session.id, httponly=True, samesite="strict", secure=secure)


def set_login_cookie(response: Response, login_id: str | None, console: Console) -> None:
    """The cookie of a login at the provider, or the end of it.

    It has to come along when the provider sends the browser back, which a strict one would not.
    """
    secure = console.settings.listen.is_https
    if login_id is None:
        response.delete_cookie(
            console.login_cookie, path=OIDC_PATH, httponly=True, samesite="lax", secure=secure
        )
    else:
        response.set_cookie(
            console.login_cookie,
            login_id,
            max_age=int(PATIENCE_S),
            path=OIDC_PATH,
            httponly=True,
            samesite="lax",
            secure=secure,
        )
