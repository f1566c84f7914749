"""How often answers held which error, by API; counted where an error is told to a client.

As in Kafka every code in an answer counts, NONE among them: that of the answer and that of each item in it.
A code that is in an answer of an older version only does not count in a newer one, whose message has it, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tidelog.errors import ErrorCode

_SLICE = 256
_OWN_CODE_SINCE = {"AddPartitionsToTxn": 4}
"""Where Kafka does not count an answer's own code before it is sent; others' it counts (ElectLeaders)."""
_OWN_CODE_UNTIL = {"FindCoordinator": 3, "OffsetFetch": 7}
"""The last versions with a code of the answer's own; from then on each item has one."""
_ANY_VERSION = 32767
_NOT_COUNTED = frozenset({"matching_acls"})
"""Items whose codes Kafka leaves out: those of the filters that found them count (DeleteAcls)."""
_NAMES = {int(code): code.name for code in ErrorCode}
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR.name


class RequestErrors:
    """The errors of one broker's answers: by the name of the API, by the name of the error."""

    def __init__(self) -> None:
        self.by_request: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.counted: Counter[str] = Counter()
        """How many requests' codes are in that; others' answers held no error, and nobody looked for more."""

    def count(self, request: str, codes: Mapping[int, int]) -> None:
        """Codes that no answer tells, and how often: with acks=0 the connection is closed instead."""
        found = self.by_request[request]
        for code, number in codes.items():
            found[_NAMES.get(code, _UNKNOWN)] += number

    def count_answer(self, request: str, codes: Mapping[int, int]) -> None:
        """All codes of one answer, and how often it has them."""
        self.counted[request] += 1
        self.count(request, codes)

    def count_unanswered(self, request: str) -> None:
        """A request that nobody answers, and that has no error: no code is told, not even NONE."""
        self.counted[request] += 1

    def count_in(self, request: str, response: object, version: int) -> None:
        """Those of a response and of the items in it."""
        codes, left = _begin(request, response, version)
        while left:
            _look_at(left.pop(), codes, left)
        self.count_answer(request, codes)

    def count_in_slices(self, request: str, response: object, version: int) -> Iterator[None]:
        """The same for a long one."""
        codes, left = _begin(request, response, version)
        looks = 0
        while left:
            _look_at(left.pop(), codes, left)
            looks += 1
            if not looks % _SLICE:
                yield
        self.count_answer(request, codes)


def _begin(request: str, response: object, version: int) -> tuple[dict[int, int], list[object]]:
    """The code of an answer itself, where it counts in this version, and the items in it."""
    codes: dict[int, int] = {}
    left: list[object] = []
    if _OWN_CODE_SINCE.get(request, 0) <= version <= _OWN_CODE_UNTIL.get(request, _ANY_VERSION):
        _look_at(response, codes, left)
    else:
        _add_items(response, left)
    return codes, left


def _look_at(message: object, codes: dict[int, int], left: list[object]) -> None:
    """Add the code of a message to ``codes``, if it has one, and the items in it to ``left``."""
    code = getattr(message, "error_code", None)
    if code is None:
        code = getattr(message, "partition_error_code", None)
    if code is not None:
        codes[code] = codes.get(code, 0) + 1
    _add_items(message, left)


def _add_items(message: object, left: list[object]) -> None:
    for field in getattr(message, "__struct_fields__", ()):
        items = getattr(message, field)
        if not isinstance(items, list) or not items or field in _NOT_COUNTED:
            continue
        if hasattr(items[0], "__struct_fields__"):
            left.extend(items)
