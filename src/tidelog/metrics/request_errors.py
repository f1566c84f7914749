"""How often answers held which error, by API; counted where an error is told to a client."""

from __future__ import annotations

from collections import Counter, defaultdict

from tidelog.errors import ErrorCode


class RequestErrors:
    """The errors of one broker's answers: by the name of the API, by the name of the error."""

    def __init__(self) -> None:
        self.by_request: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def count(self, request: str, error: str) -> None:
        """One more."""
        self.by_request[request][error] += 1

    def count_in(self, request: str, response: object) -> None:
        """Those of a response and of the items in it."""
        code = getattr(response, "error_code", 0)
        if code:
            self.count(request, ErrorCode(code).name)
        for field in getattr(response, "__struct_fields__", ()):
            items = getattr(response, field)
            if isinstance(items, list) and items and hasattr(items[0], "__struct_fields__"):
                for item in items:
                    self.count_in(request, item)
