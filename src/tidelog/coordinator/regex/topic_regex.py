"""Regular expressions over topic names, in time that grows with the name and not beyond.

Kafka uses RE2 for this, because an expression comes from anybody who may join a group and is evaluated by the
coordinator for all topics; Python's ``re`` would let ``(a+)+b`` stop the broker. Here an expression becomes a
finite automaton: all the places that it may be in are followed at once, and what was found out about a set of
places is kept for the next name.

Whole names are matched. Differences from Kafka's RE2/J: an expression that needs more than ``MAX_PLACES``
places, or repeats repetitions more than a thousand times in all, is refused; scripts of ``\\p{...}`` that
have no ASCII characters are accepted whether or not they exist.
"""

from __future__ import annotations

from functools import lru_cache

from tidelog.coordinator.regex.regex_sets import WORD
from tidelog.coordinator.regex.regex_syntax import (
    At,
    Chars,
    Choice,
    Look,
    Node,
    Repeat,
    Sequence,
    SyntaxFault,
    parse,
)
from tidelog.errors import ErrorCode, KafkaError

MAX_PLACES = 4000
_MAX_REMEMBERED = 2000
_MATCHED = -1


class _Spot:
    """A set of places together with what stood before; knows where characters seen so far have led."""

    __slots__ = ("accepts", "after_word", "at_start", "places", "then")

    def __init__(self, places: frozenset[int], *, at_start: bool, after_word: bool) -> None:
        self.places = places
        self.at_start = at_start
        self.after_word = after_word
        self.then: dict[str, _Spot] = {}
        self.accepts: bool | None = None


class TopicRegex:
    """One expression, ready to match; made by :func:`compile_regex`."""

    def __init__(self, node: Node) -> None:
        self._steps: list[tuple[int, int]] = []
        """Places where a character of a set (a mask) leads to the next place."""
        self._jumps: list[tuple[int, ...]] = []
        """Where one gets from a place without a character."""
        self._looks: list[Look | None] = []
        """What must hold at a place to get on from it."""
        self._first = self._build(node, _MATCHED)
        self._start = _Spot(frozenset({self._first}), at_start=True, after_word=False)
        self._spots: dict[tuple[frozenset[int], bool], _Spot] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is matched."""
        spot = self._start
        for char in name:
            spot = spot.then.get(char) or self._advance(spot, char)
            if not spot.places:
                return False
        if spot.accepts is None:
            spot.accepts = _MATCHED in self._reach(spot, at_end=True, before_word=False)
        return spot.accepts

    def _advance(self, spot: _Spot, char: str) -> _Spot:
        code = ord(char)
        bit = 1 << code if code < 128 else 0
        is_word = bool(bit & WORD)
        places = frozenset(
            self._steps[place][1]
            for place in self._reach(spot, at_end=False, before_word=is_word)
            if place != _MATCHED and self._steps[place][0] & bit
        )
        found = self._spots.get((places, is_word))
        if found is None:
            if len(self._spots) >= _MAX_REMEMBERED:
                self._spots.clear()
                self._start.then.clear()
            found = self._spots[places, is_word] = _Spot(places, at_start=False, after_word=is_word)
        spot.then[char] = found
        return found

    def _reach(self, spot: _Spot, *, at_end: bool, before_word: bool) -> set[int]:
        """All places that are reached without a character, the positions asked for being right."""
        boundary = spot.after_word != before_word
        holds = {
            Look.START: spot.at_start,
            Look.END: at_end,
            Look.BOUNDARY: boundary,
            Look.NO_BOUNDARY: not boundary,
            None: True,
        }
        reached = set(spot.places)
        left = list(reached)
        while left:
            place = left.pop()
            if place == _MATCHED or not holds[self._looks[place]]:
                continue
            for other in self._jumps[place]:
                if other not in reached:
                    reached.add(other)
                    left.append(other)
        return reached

    # Construction: each part is built to lead to the place that follows it

    def _place(
        self,
        *,
        mask: int = 0,
        leads_to: int = _MATCHED,
        jumps: tuple[int, ...] = (),
        look: Look | None = None,
    ) -> int:
        if len(self._steps) >= MAX_PLACES:
            raise SyntaxFault("expression too large")
        self._steps.append((mask, leads_to))
        self._jumps.append(jumps)
        self._looks.append(look)
        return len(self._steps) - 1

    def _build(self, node: Node, follows: int) -> int:
        match node:
            case Chars(mask):
                return self._place(mask=mask, leads_to=follows)
            case At(look):
                return self._place(jumps=(follows,), look=look)
            case Sequence(parts):
                for part in reversed(parts):
                    follows = self._build(part, follows)
                return follows
            case Choice(options):
                return self._place(jumps=tuple(self._build(option, follows) for option in options))
        return self._build_repeat(node, follows)

    def _build_repeat(self, node: Repeat, follows: int) -> int:
        if node.most is None:
            loop = self._place()
            self._jumps[loop] = (self._build(node.part, loop), follows)
            follows = loop
        else:
            end = follows
            for _ in range(node.most - node.least):
                follows = self._place(jumps=(self._build(node.part, follows), end))
        for _ in range(node.least):
            follows = self._build(node.part, follows)
        return follows


@lru_cache(maxsize=512)
def compile_regex(text: str) -> TopicRegex:
    """The automaton of an expression; raises INVALID_REGULAR_EXPRESSION."""
    try:
        return TopicRegex(parse(text))
    except (SyntaxFault, RecursionError) as error:
        why = str(error) if isinstance(error, SyntaxFault) else "nested too deeply"
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}.",
        ) from error
