"""The OpenAPI document of the API, made of the endpoints themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec

from tidelog.console.api.endpoint import Endpoint
from tidelog.console.auth.sessions import COOKIE, TOKEN_HEADER
from tidelog.version import __version__

_PARAMETER = re.compile(r"\{(\w+)\}")


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document, for OpenAPI 3.1."""
    listed = list(endpoints)
    bodies = list(dict.fromkeys(each.asked for each in listed))
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for each in listed:
        paths.setdefault(f"/api{each.path}", {})[each.method.lower()] = _operation(each, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidelog console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": f"{COOKIE}-PORT"},
                "token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
            },
        },
    }


def _operation(endpoint: Endpoint, components: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": cleandoc(endpoint.handle.__doc__ or ""),
        "tags": [_tag(endpoint.path)],
        "x-role": endpoint.role.name.lower(),
        "responses": {
            "200": {"description": "Done."},
            "default": {
                "description": "Refused: `error` is a sentence for people, `code` a word for programs."
            },
        },
        "security": [{"session": [], **({"token": []} if endpoint.action else {})}],
    }
    schema = components[endpoint.asked.__name__]
    if endpoint.method == "GET":
        required = schema.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": each}
            for name, each in schema.get("properties", {}).items()
        ]
    elif schema.get("properties"):
        reference = {"$ref": f"#/components/schemas/{endpoint.asked.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _tag(path: str) -> str:
    parts = [each for each in path.split("/") if each and not each.startswith("{")]
    return parts[1] if len(parts) > 1 and parts[0] == "clusters" else parts[0]
