"""A schema registry, asked over HTTP within bounds: in time, in size, and only at the address that was named.

Schemas are kept by their ids, as an id means the same for ever; that one is not there only for a while. A
registry that does not answer is left alone for some seconds, in which everybody hears so at once. Requests
belong to the registry, not to who asks: of several who want one schema one asks, and who leaves ends nothing.
Neither its address nor a password is in what is said about it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from tidelog.console.records.decoding.frames import NamedText
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.settings import RegistrySettings
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

REQUEST_S = 5.0
SCHEMA_S = 12.0
"""For a schema with all that it refers to."""
_ANSWER_BYTES = 2 * 1024 * 1024
_SCHEMA_BYTES = 4 * 1024 * 1024
_REFERENCES = 100
_AT_ONCE = 4
_KEPT = 1000
_KEPT_BYTES = 64 * 1024 * 1024
_SUBJECTS = 50
_UNKNOWN_S = 30.0
_SILENT_S = 10.0
_TYPES = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "jsonschema"}


class SchemaRef(NamedTuple):
    """How a field names its schema: by a number, or by a GUID."""

    id: int | None = None
    guid: str = ""

    def __str__(self) -> str:
        return f"schema {self.guid if self.id is None else self.id}"


class Subject(NamedTuple):
    """A name under which a schema was registered."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry gave it; ``references`` stand after what they refer to themselves."""

    ref: SchemaRef
    type: str
    text: str
    references: tuple[NamedText, ...] = ()
    subjects: tuple[Subject, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes."""
        return len(self.text) + sum(len(each.text) for each in self.references)


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _SchemaAnswer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] = []


class _SubjectAnswer(msgspec.Struct):
    subject: str
    version: int


class _Silent(DecodeProblem):
    """The registry does not answer, whatever it is asked."""


class Registry:
    """The registry of one cluster."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = settings.url.rstrip("/")
        self._clock = clock
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            # What is packed may be larger than it says.
            "Accept-Encoding": "identity",
        }
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        auth = httpx.BasicAuth(settings.user, settings.password) if settings.user else None
        self._http = httpx.AsyncClient(
            auth=auth,
            headers=headers,
            verify=_tls(settings),
            follow_redirects=False,
            trust_env=False,
            timeout=None,  # ours is for all of an answer, which may come drop by drop
            limits=httpx.Limits(max_connections=_AT_ONCE),
        )
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._found: OrderedDict[SchemaRef, Schema] = OrderedDict()
        self._found_bytes = 0
        self._problems: dict[SchemaRef, tuple[float, str]] = {}
        self._asking: dict[SchemaRef, asyncio.Task[Schema]] = {}
        self._silent_until_s = 0.0
        self._silence = ""

    async def close(self) -> None:
        """Ask nothing more."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await self._http.aclose()

    async def schema(self, ref: SchemaRef) -> Schema:
        """A schema; raises ``DecodeProblem``, within ``SCHEMA_S``."""
        found = self._found.get(ref)
        if found is not None:
            self._found.move_to_end(ref)
            return found
        now_s = self._clock()
        until_s, problem = self._problems.get(ref, (0.0, ""))
        if now_s < until_s:
            raise DecodeProblem(problem)
        if now_s < self._silent_until_s:
            raise DecodeProblem(self._silence)
        task = self._asking.get(ref)
        if task is None:
            task = asyncio.create_task(self._ask(ref), name=str(ref))
            task.add_done_callback(_seen)
            self._asking[ref] = task
        return await asyncio.shield(task)

    async def _ask(self, ref: SchemaRef) -> Schema:
        try:
            async with self._room:
                if self._clock() < self._silent_until_s:
                    raise _Silent(self._silence)
                async with asyncio.timeout(SCHEMA_S):
                    found = await self._read(ref)
        except TimeoutError:
            problem = f"the schema registry took more than {SCHEMA_S:g} s for {ref} and its references"
            self._forget_for_now(ref, problem)
            raise DecodeProblem(problem) from None
        except _Silent:
            raise
        except DecodeProblem as error:
            self._forget_for_now(ref, str(error))
            raise
        finally:
            self._asking.pop(ref, None)
        self._keep(found)
        return found

    def _keep(self, schema: Schema) -> None:
        self._found[schema.ref] = schema
        self._found_bytes += schema.size_bytes
        while len(self._found) > _KEPT or self._found_bytes > _KEPT_BYTES:
            _, dropped = self._found.popitem(last=False)
            self._found_bytes -= dropped.size_bytes

    def _forget_for_now(self, ref: SchemaRef, problem: str) -> None:
        now_s = self._clock()
        if len(self._problems) >= _KEPT:
            self._problems = {each: told for each, told in self._problems.items() if told[0] > now_s}
            if len(self._problems) >= _KEPT:
                self._problems.clear()
        self._problems[ref] = (now_s + _UNKNOWN_S, problem)

    async def _read(self, ref: SchemaRef) -> Schema:
        path = (
            f"/schemas/ids/{ref.id}" if ref.id is not None else f"/schemas/guids/{quote(ref.guid, safe='')}"
        )
        answer = await self._schema_at(path, str(ref))
        type_ = _TYPES.get(answer.schema_type)
        if type_ is None:
            raise DecodeProblem(f"{ref} is neither Avro, Protobuf nor JSON Schema")
        references: dict[str, NamedText] = {}
        await self._follow(answer.references, references, {"": None}, len(answer.schema))
        return Schema(ref, type_, answer.schema, tuple(references.values()), await self._subjects(ref))

    async def _follow(
        self, given: list[_Reference], found: dict[str, NamedText], begun: dict[str, None], size: int
    ) -> int:
        """Add what is referred to, the innermost first; gives how large everything is by now."""
        for each in given:
            if each.name in begun:
                continue
            begun[each.name] = None
            if len(begun) > _REFERENCES:
                raise DecodeProblem(f"the schema refers to more than {_REFERENCES} others")
            path = f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}"
            answer = await self._schema_at(path, "a referenced schema")
            size += len(answer.schema)
            if size > _SCHEMA_BYTES:
                raise DecodeProblem(f"the schema and its references have more than {_SCHEMA_BYTES} bytes")
            size = await self._follow(answer.references, found, begun, size)
            found[each.name] = NamedText(each.name, answer.schema)
        return size

    async def _subjects(self, ref: SchemaRef) -> tuple[Subject, ...]:
        """The names of the schema; none where the registry does not tell, as a schema is good without."""
        if ref.id is None:
            return ()
        try:
            body = await self._get(f"/schemas/ids/{ref.id}/versions", str(ref))
            told = msgspec.json.decode(body, type=list[_SubjectAnswer])
        except (DecodeProblem, *DECODE_ERRORS):
            return ()
        return tuple(Subject(each.subject, each.version) for each in told[:_SUBJECTS])

    async def _schema_at(self, path: str, what: str) -> _SchemaAnswer:
        body = await self._get(path, what)
        try:
            return msgspec.json.decode(body, type=_SchemaAnswer)
        except DECODE_ERRORS:
            raise DecodeProblem(f"the schema registry's response for {what} is not a schema") from None

    async def _get(self, path: str, what: str) -> bytes:
        try:
            async with asyncio.timeout(REQUEST_S), self._http.stream("GET", self._url + path) as answer:
                if answer.is_redirect:
                    raise DecodeProblem(
                        "the schema registry responded with a redirect, which is not followed: "
                        "configure its final address"
                    )
                if answer.status_code in (401, 403):
                    raise DecodeProblem(
                        f"the schema registry does not let the console read {what} ({answer.status_code})"
                    )
                if answer.status_code == 404:
                    raise DecodeProblem(f"the schema registry does not have {what}")
                if answer.status_code != 200:
                    raise DecodeProblem(
                        f"the schema registry responded with status {answer.status_code} for {what}"
                    )
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise DecodeProblem(
                        f"the schema registry compressed {what}, although the request does not allow it"
                    )
                body = bytearray()
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) > _ANSWER_BYTES:
                        raise DecodeProblem(
                            f"the schema registry's response for {what} has more than {_ANSWER_BYTES} bytes"
                        )
                return bytes(body)
        except TimeoutError:
            raise self._is_silent(f"it took more than {REQUEST_S:g} s") from None
        except httpx.InvalidURL:
            raise DecodeProblem(f"{what} has a name that cannot be requested") from None
        except httpx.HTTPError as error:
            raise self._is_silent(type(error).__name__) from error

    def _is_silent(self, why: str) -> _Silent:
        self._silence = f"the schema registry does not respond ({why})"
        self._silent_until_s = self._clock() + _SILENT_S
        logger.warning("the schema registry at %s does not respond: %s", self._url, why)
        return _Silent(self._silence)


def _seen(task: asyncio.Task[Schema]) -> None:
    """Whoever asked may have left; what went wrong is kept for the next one."""
    if not task.cancelled():
        task.exception()


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
    except (OSError, ssl.SSLError):
        raise ConfigError(
            f"the schema registry's ca_file {settings.ca} contains no PEM certificates"
        ) from None
