"""Regular expressions over topic names, in time that grows with the name and not beyond.

Kafka uses RE2 for this, because an expression comes from anybody who may join a group and is evaluated by the
coordinator for all topics; Python's ``re`` would let ``(a+)+b`` stop the broker. Here an expression becomes a
finite automaton: all the places that it may be in are followed at once, and what was found out about a set of
places is kept for the next name.

One character may still lead to thousands of places, which takes a millisecond or two. So a name is matched in
slices (``TopicRegex.matching``) that end wherever something had to be found out. Automata and what they
remember share ``MAX_BYTES``: those that were not used for longest are made again when they are needed.
Nobody holds an automaton between two slices.

Whole names are matched. Differences from Kafka's RE2/J: an expression that needs more than ``MAX_PLACES``
places, repeats repetitions more than a thousand times in all, or is longer or nested deeper than
``re2_syntax`` takes, is refused; scripts of ``\\p{...}`` that have no ASCII characters are accepted whether
or not they exist.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from tidelog.errors import ErrorCode, KafkaError
from tidelog.regex.ascii_sets import WORD
from tidelog.regex.re2_syntax import (
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
from tidelog.scheduling.slices import Slices, run_to_end

MAX_PLACES = 4000
MAX_BYTES = 64 << 20
"""What all automata may take together, about."""
_MAX_REMEMBERED_BYTES = 4 << 20
"""What one of them may remember: to forget it takes a few milliseconds."""
_MATCHED = -1

# What things take in memory, measured and rounded up.
_AUTOMATON_BYTES = 2000
_PLACE_BYTES = 160
_SPOT_BYTES = 600
_PLACE_IN_SPOT_BYTES = 8
_THEN_BYTES = 64


class _Spot:
    """A set of places together with what stood before; knows where characters seen so far have led."""

    __slots__ = ("accepts", "after_word", "at_start", "places", "then")

    def __init__(self, places: tuple[int, ...], *, at_start: bool, after_word: bool) -> None:
        self.places = places
        """In their order, so that the same set is the same tuple; a set would take ten times the memory."""
        self.at_start = at_start
        self.after_word = after_word
        self.then: dict[str, _Spot] = {}
        self.accepts: bool | None = None


class _Automaton:
    """The places of one expression, and what has been found out about sets of them.

    Places have the same numbers whenever it is made, so a spot outlives the automaton that it was found in.
    """

    def __init__(self, text: str) -> None:
        """Raises ``SyntaxFault``."""
        self._steps: list[tuple[int, int]] = []
        """Places where a character of a set (a mask) leads to the next place."""
        self._jumps: list[tuple[int, ...]] = []
        """Where one gets from a place without a character."""
        self._looks: list[Look | None] = []
        """What must hold at a place to get on from it."""
        first = self._build(parse(text), _MATCHED)
        self.start = _Spot((first,), at_start=True, after_word=False)
        self._spots: dict[tuple[tuple[int, ...], bool], _Spot] = {}
        self._own_bytes = _AUTOMATON_BYTES + sys.getsizeof(text) + len(self._steps) * _PLACE_BYTES
        self._remembered_bytes = 0

    @property
    def held_bytes(self) -> int:
        """What it takes, about, together with its text."""
        return self._own_bytes + self._remembered_bytes

    def forget(self) -> None:
        """Let go of all that was found out; spots lead to each other, so each lets go of the others."""
        for spot in self._spots.values():
            spot.then.clear()
        self._spots.clear()
        self.start.then.clear()
        self._remembered_bytes = 0

    def advance(self, spot: _Spot, char: str) -> _Spot:
        """Find out where a character leads."""
        code = ord(char)
        bit = 1 << code if code < 128 else 0
        is_word = bool(bit & WORD)
        reached = self._reach(spot, at_end=False, before_word=is_word)
        reached.discard(_MATCHED)
        steps = self._steps
        places = tuple(sorted({steps[place][1] for place in reached if steps[place][0] & bit}))
        if self._remembered_bytes >= _MAX_REMEMBERED_BYTES:
            self.forget()
        found = self._spots.get((places, is_word))
        if found is None:
            found = self._spots[places, is_word] = _Spot(places, at_start=False, after_word=is_word)
            self._remembered_bytes += _SPOT_BYTES + len(places) * _PLACE_IN_SPOT_BYTES
        spot.then[char] = found
        self._remembered_bytes += _THEN_BYTES
        return found

    def accepts(self, spot: _Spot) -> bool:
        """Find out whether a name that ends here is matched."""
        return _MATCHED in self._reach(spot, at_end=True, before_word=False)

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
            case Sequence(()):
                # It takes a place so that places bound what an expression costs: (?:||||){1000} is short.
                return self._place(jumps=(follows,))
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


class Automata:
    """The automata that were used last, by their expressions; as many as there is room for."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_text: OrderedDict[str, _Automaton] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._by_text)

    def start(self, text: str) -> _Spot:
        """Where the automaton of an expression begins; raises ``SyntaxFault``."""
        return self._get(text).start

    def advance(self, text: str, spot: _Spot, char: str) -> _Spot:
        """Where a character leads from a spot that does not know it yet."""
        automaton = self._get(text)
        before = automaton.held_bytes
        found = automaton.advance(spot, char)
        self._hold(automaton.held_bytes - before)
        return found

    def accepts(self, text: str, spot: _Spot) -> bool:
        """Whether a name that ends at a spot is matched."""
        return self._get(text).accepts(spot)

    def _get(self, text: str) -> _Automaton:
        automaton = self._by_text.get(text)
        if automaton is not None:
            self._by_text.move_to_end(text)
            return automaton
        automaton = self._by_text[text] = _Automaton(text)
        self._hold(automaton.held_bytes)
        return automaton

    def _hold(self, more_bytes: int) -> None:
        """Somebody takes more: those that were not used for longest make room."""
        self.held_bytes += more_bytes
        while self.held_bytes > self._max_bytes and len(self._by_text) > 1:
            _, oldest = self._by_text.popitem(last=False)
            self.held_bytes -= oldest.held_bytes
            oldest.forget()


class TopicRegex:
    """One expression, ready to match; made by :func:`compile_regex`."""

    def __init__(self, text: str, automata: Automata) -> None:
        """Raises ``SyntaxFault``."""
        self._text = text
        self._automata = automata
        automata.start(text)

    def matching(self, name: str) -> Slices[bool]:
        """Whether the whole name is matched; others may run after each step that was not known."""
        spot = self._automata.start(self._text)
        for char in name:
            then = spot.then.get(char)
            if then is None:
                then = self._automata.advance(self._text, spot, char)
                yield
            spot = then
            if not spot.places:
                return False
        if spot.accepts is None:
            spot.accepts = self._automata.accepts(self._text, spot)
            yield
        return spot.accepts

    def matches(self, name: str) -> bool:
        """:meth:`matching`, at once."""
        return run_to_end(self.matching(name))


_AUTOMATA = Automata(MAX_BYTES)


def compile_regex(text: str, what: str = "SubscribedTopicRegex") -> TopicRegex:
    """An expression, called ``what`` if it is none; raises INVALID_REGULAR_EXPRESSION."""
    try:
        return TopicRegex(text, _AUTOMATA)
    except SyntaxFault as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{text}` is not a valid regular expression: {error}.",
        ) from error
