"""How often answers held which error, by API; counted where an error is told to a client.

As in Kafka every code in an answer counts, NONE among them: that of the answer and that of each item in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tidelog.errors import ErrorCode

_SLICE = 256
_NAMES = {int(code): code.name for code in ErrorCode}
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR.name


class RequestErrors:
    """The errors of one broker's answers: by the name of the API, by the name of the error."""

    def __init__(self) -> None:
        self.by_request: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.counted: Counter[str] = Counter()
        """How many answers' codes are in that; others held no error, and nobody looked for more."""

    def count(self, request: str, codes: Mapping[int, int]) -> None:
        """Codes that no answer tells, and how often: with acks=0 there is none."""
        found = self.by_request[request]
        for code, number in codes.items():
            found[_NAMES.get(code, _UNKNOWN)] += number

    def count_answer(self, request: str, codes: Mapping[int, int]) -> None:
        """All codes of one answer, and how often it has them."""
        self.counted[request] += 1
        self.count(request, codes)

    def count_in(self, request: str, response: object) -> None:
        """Those of a response and of the items in it."""
        codes: dict[int, int] = {}
        left = [response]
        while left:
            _look_at(left.pop(), codes, left)
        self.count_answer(request, codes)

    def count_in_slices(self, request: str, response: object) -> Iterator[None]:
        """The same for a long one."""
        codes: dict[int, int] = {}
        left = [response]
        looks = 0
        while left:
            _look_at(left.pop(), codes, left)
            looks += 1
            if not looks % _SLICE:
                yield
        self.count_answer(request, codes)


def _look_at(message: object, codes: dict[int, int], left: list[object]) -> None:
    """Add the code of a message to ``codes``, if it has one, and the items in it to ``left``."""
    code = getattr(message, "error_code", None)
    if code is not None:
        codes[code] = codes.get(code, 0) + 1
    for field in getattr(message, "__struct_fields__", ()):
        items = getattr(message, field)
        if isinstance(items, list) and items and hasattr(items[0], "__struct_fields__"):
            left.extend(items)
