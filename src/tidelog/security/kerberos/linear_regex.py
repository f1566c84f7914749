r"""Regular expressions of ``auth_to_local`` rules, in time that grows with text and pattern and not beyond.

They are Java's, and so are what they match and capture. Python's ``re`` would do most of that, but tries all
ways to match one after the other and holds the interpreter meanwhile: ``(a+)+b`` and a principal of forty
letters would stop the broker. Here all ways are followed at once, in the order in which Java would try them
(Pike's method): at most ``MAX_INSTRUCTIONS`` steps for each character.

What rules are made of is there: characters, ``.``, sets, ``\d \w \s \b``, groups that capture or not, ``|``,
``^``, ``$`` and repetition, greedy or lazy. Refused by name are look-around, references to groups, flags,
possessive repetition, sets within sets, and the repetition of what may be empty. Text must hold no line ends
or other control characters, at which dots and ends would differ from Java's; ``auth_to_local`` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_INSTRUCTIONS = 500

_CharTest = Callable[[str], bool]
_Captures = tuple[int, ...]
_UNSET = -1
_MANY = MAX_INSTRUCTIONS + 1


class RegexFault(ValueError):
    """A pattern that cannot be used; the text says why."""


class Found(NamedTuple):
    """Where a pattern has matched."""

    start: int
    end: int
    groups: tuple[str | None, ...]
    """The whole of it, then what each group has captured."""


# The tree


class _Char(NamedTuple):
    test: _CharTest


class _At(NamedTuple):
    holds: Callable[[str, int], bool]


class _Group(NamedTuple):
    number: int
    body: _Node


class _Sequence(NamedTuple):
    parts: tuple[_Node, ...]


class _Choice(NamedTuple):
    ways: tuple[_Node, ...]


class _Repeat(NamedTuple):
    body: _Node
    least: int
    most: int | None
    is_lazy: bool


_Node = _Char | _At | _Group | _Sequence | _Choice | _Repeat


# The program


class _Split(NamedTuple):
    first: int
    second: int


class _Jump(NamedTuple):
    to: int


class _Save(NamedTuple):
    slot: int


class _End(NamedTuple):
    pass


_Instruction = _Char | _At | _Split | _Jump | _Save | _End


class LinearRegex:
    """One pattern, ready to match."""

    def __init__(self, pattern: str) -> None:
        """Raises :class:`RegexFault`."""
        parser = _Parser(pattern)
        tree = parser.parse()
        self.pattern = pattern
        self.group_count = parser.group_count
        self.group_names = parser.names
        self._program: list[_Instruction] = []
        self._emit(_Group(0, tree))
        self._add(_End())

    def fullmatch(self, text: str) -> Found | None:
        """Where the pattern matches, if it matches the whole of ``text``."""
        return self._run(text, 0, whole=True)

    def search(self, text: str, start: int = 0) -> Found | None:
        """The first place at or behind ``start`` at which the pattern matches."""
        return self._run(text, start, whole=False)

    # Compiling

    def _add(self, instruction: _Instruction) -> int:
        if len(self._program) >= MAX_INSTRUCTIONS:
            raise RegexFault(f"it is too long: it comes to more than {MAX_INSTRUCTIONS} steps")
        self._program.append(instruction)
        return len(self._program) - 1

    def _emit(self, node: _Node) -> None:
        if isinstance(node, _Char | _At):
            self._add(node)
        elif isinstance(node, _Group):
            self._add(_Save(2 * node.number))
            self._emit(node.body)
            self._add(_Save(2 * node.number + 1))
        elif isinstance(node, _Sequence):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, _Choice):
            self._emit_choice(node.ways)
        else:
            self._emit_repeat(node)

    def _emit_choice(self, ways: tuple[_Node, ...]) -> None:
        ends: list[int] = []
        for way in ways[:-1]:
            split = self._add(_Jump(0))
            self._emit(way)
            ends.append(self._add(_Jump(0)))
            self._program[split] = _Split(split + 1, len(self._program))
        self._emit(ways[-1])
        for end in ends:
            self._program[end] = _Jump(len(self._program))

    def _emit_repeat(self, node: _Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.body)
        if node.most is None:
            split = self._add(_Jump(0))
            self._emit(node.body)
            self._add(_Jump(split))
            self._program[split] = self._way_in_or_out(split, node)
            return
        splits: list[int] = []
        for _ in range(node.most - node.least):
            splits.append(self._add(_Jump(0)))
            self._emit(node.body)
        for split in splits:
            self._program[split] = self._way_in_or_out(split, node)

    def _way_in_or_out(self, split: int, node: _Repeat) -> _Split:
        into, out = split + 1, len(self._program)
        return _Split(out, into) if node.is_lazy else _Split(into, out)

    # Matching

    def _run(self, text: str, start: int, *, whole: bool) -> Found | None:
        nothing: _Captures = (_UNSET,) * (2 * (self.group_count + 1))
        best: _Captures | None = None
        threads: list[tuple[int, _Captures]] = []
        for pos in range(start, len(text) + 1):
            if best is None and (pos == start or not whole):
                threads.append((0, nothing))
            if not threads:
                break
            threads, ended = self._advance(threads, text, pos, whole=whole)
            best = ended or best
        return None if best is None else _found(text, best)

    def _advance(
        self, threads: list[tuple[int, _Captures]], text: str, pos: int, *, whole: bool
    ) -> tuple[list[tuple[int, _Captures]], _Captures | None]:
        """Those that take the character at ``pos``, and the first that ends before it."""
        seen: set[int] = set()
        taken: list[tuple[int, _Captures]] = []
        char = text[pos] if pos < len(text) else None
        stack = threads[::-1]
        while stack:
            at, captures = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._program[at]
            if isinstance(instruction, _Char):
                if char is not None and instruction.test(char):
                    taken.append((at + 1, captures))
            elif isinstance(instruction, _Split):
                stack.append((instruction.second, captures))
                stack.append((instruction.first, captures))
            elif isinstance(instruction, _Jump):
                stack.append((instruction.to, captures))
            elif isinstance(instruction, _Save):
                slot = instruction.slot
                stack.append((at + 1, (*captures[:slot], pos, *captures[slot + 1 :])))
            elif isinstance(instruction, _At):
                if instruction.holds(text, pos):
                    stack.append((at + 1, captures))
            elif char is None or not whole:
                return taken, captures
        return taken, None


def _found(text: str, captures: _Captures) -> Found:
    pairs = zip(captures[::2], captures[1::2], strict=True)
    groups = tuple(None if _UNSET in (start, end) else text[start:end] for start, end in pairs)
    return Found(captures[0], captures[1], groups)


# Reading

_DIGITS = frozenset("0123456789")
_WORD = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = frozenset(" \t\n\v\f\r")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "e": "\x1b", "a": "\a"}


def _is_boundary(text: str, pos: int) -> bool:
    before = pos > 0 and _is_word(text[pos - 1])
    return before != (pos < len(text) and _is_word(text[pos]))


def _is_word(char: str) -> bool:
    # Java's boundaries, unlike its \w, know letters beyond ASCII.
    return char.isalnum() or char == "_"


_LOOKS: dict[str, Callable[[str, int], bool]] = {
    "^": lambda text, pos: pos == 0,
    "$": lambda text, pos: pos == len(text),
    "b": _is_boundary,
    "B": lambda text, pos: not _is_boundary(text, pos),
    "A": lambda text, pos: pos == 0,
    "z": lambda text, pos: pos == len(text),
    "Z": lambda text, pos: pos == len(text),
}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._pos = 0
        self.group_count = 0
        self.names: dict[str, int] = {}

    def parse(self) -> _Node:
        tree = self._choice()
        if self._pos < len(self._text):
            raise RegexFault("it has a ) without a (")
        return tree

    def _peek(self) -> str:
        return self._text[self._pos : self._pos + 1]

    def _takes(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self._pos):
            return False
        self._pos += len(symbol)
        return True

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise RegexFault("it ends in the middle of something")
        self._pos += 1
        return char

    def _choice(self) -> _Node:
        ways = [self._sequence()]
        while self._takes("|"):
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else _Choice(tuple(ways))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, body: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return body
        least, most = bounds
        is_lazy = self._takes("?")
        if self._peek() in ("*", "+", "?", "{"):
            raise RegexFault("it repeats a repetition (possessive ones are not known)")
        if (most is None or most > 1) and _may_be_empty(body):
            raise RegexFault("it repeats something that may be empty")
        return _Repeat(body, least, most, is_lazy)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._takes("*"):
            return 0, None
        if self._takes("+"):
            return 1, None
        if self._takes("?"):
            return 0, 1
        if not self._takes("{"):
            return None
        inside, closing, _ = self._text[self._pos :].partition("}")
        least, comma, most = inside.partition(",")
        if not closing or not _is_number(least) or not (most == "" or _is_number(most)):
            raise RegexFault("it has a { that begins no repetition; write \\{ for the character")
        self._pos += len(inside) + 1
        # A number beyond what a program may hold is refused when it is compiled, whatever it is.
        low = min(int(least), _MANY)
        high = low if not comma else None if not most else min(int(most), _MANY)
        if high is not None and high < low:
            raise RegexFault("it has a repetition whose end is below its beginning")
        return low, high

    def _atom(self) -> _Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return _Char(self._set())
        if char == ".":
            return _Char(lambda _: True)
        if char in "^$":
            return _At(_LOOKS[char])
        if char in "*+?{":
            raise RegexFault(f"it has a {char} with nothing before it to repeat")
        if char == "\\":
            return self._escaped()
        return _Char(char.__eq__)

    def _group(self) -> _Node:
        number = None
        if self._takes("?"):
            if self._takes("<") and self._peek().isalpha():
                number = self._named()
            elif not self._takes(":"):
                raise RegexFault(
                    "it has a group that begins with ?, of which only (?: and (?<name> are known"
                )
        else:
            number = self._next_number()
        body = self._choice()
        if not self._takes(")"):
            raise RegexFault("it has a ( without a )")
        return body if number is None else _Group(number, body)

    def _next_number(self) -> int:
        self.group_count += 1
        return self.group_count

    def _named(self) -> int:
        name, closing, _ = self._text[self._pos :].partition(">")
        if not closing or not name.isascii() or not name.isalnum() or name in self.names:
            raise RegexFault("it has a group whose name is none, or is another's")
        self._pos += len(name) + 1
        self.names[name] = self._next_number()
        return self.names[name]

    def _escaped(self) -> _Node:
        char = self._take()
        if char in _LOOKS:
            return _At(_LOOKS[char])
        return _Char(self._class_or_char(char))

    def _class_or_char(self, char: str) -> _CharTest:
        if char.lower() in _CLASSES:
            members = _CLASSES[char.lower()]
            return members.__contains__ if char.islower() else lambda each: each not in members
        return self._literal(char).__eq__

    def _literal(self, char: str) -> str:
        """What a backslash and ``char`` stand for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "xu":
            digits = self._text[self._pos : self._pos + (2 if char == "x" else 4)]
            try:
                number = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                number = -1
            if len(digits) != (2 if char == "x" else 4) or number < 0:
                raise RegexFault(f"it has a \\{char} without the digits of a character")
            self._pos += len(digits)
            return chr(number)
        if char.isascii() and char.isalnum():
            raise RegexFault(f"it has \\{char}, which is not known here")
        return char

    def _set(self) -> _CharTest:
        is_negated = self._takes("^")
        ranges: list[tuple[str, str]] = []
        classes: list[_CharTest] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._text.startswith("&&", self._pos) or self._peek() == "[":
                raise RegexFault("it has a set within a set; write \\[ and \\& for the characters")
            char = self._take()
            if char == "\\":
                escaped = self._take()
                if escaped.lower() in _CLASSES:
                    classes.append(self._class_or_char(escaped))
                    continue
                char = self._literal(escaped)
            ranges.append((char, self._end_of_range(char)))
        self._take()

        def test(char: str) -> bool:
            inside = any(low <= char <= high for low, high in ranges) or any(each(char) for each in classes)
            return inside != is_negated

        return test

    def _end_of_range(self, first: str) -> str:
        if self._peek() != "-" or self._text[self._pos + 1 : self._pos + 2] in ("]", "", "["):
            return first
        self._pos += 1
        last = self._take()
        if last == "\\":
            last = self._literal(self._take())
        if last < first:
            raise RegexFault("it has a set with a range whose end is below its beginning")
        return last


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _may_be_empty(node: _Node) -> bool:
    if isinstance(node, _Char):
        return False
    if isinstance(node, _At):
        return True
    if isinstance(node, _Group):
        return _may_be_empty(node.body)
    if isinstance(node, _Sequence):
        return all(map(_may_be_empty, node.parts))
    if isinstance(node, _Choice):
        return any(map(_may_be_empty, node.ways))
    return node.least == 0 or _may_be_empty(node.body)
