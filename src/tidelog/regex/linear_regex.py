r"""Regular expressions for strangers' names, in time that grows with text and pattern and not beyond.

They are Java's, and so are what they match and capture. Python's ``re`` would do most of that, but tries all
ways to match one after the other and holds the interpreter meanwhile: ``(a+)+b`` and a principal of forty
letters would stop the broker. Here all ways are followed at once, in the order in which Java would try them
(Pike's method): at most as many steps for each character as the pattern has. What looks around is worked out
for all places of a text at once, ahead from its end and behind from its beginning. To replace every match
may take that time once for each: ``Steps`` bounds the whole.

What rules are made of is there: characters, ``.``, sets, ``\d \w \s \b \p{Alpha}``, groups that capture or
not, ``|``, ``^``, ``$``, repetition, greedy or lazy, ``(?i)``, and look-around that captures nothing. Refused
by name are references to groups, other flags, possessive repetition, sets within sets, and the repetition of
what may be empty. Text must hold no line ends or other control characters, at which dots and ends would
differ from Java's; who calls sees to that.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.regex.ascii_sets import POSIX, chars_of

MAX_INSTRUCTIONS = 500
MAX_DEPTH = 50

_CharTest = Callable[[str], bool]
_Captures = tuple[int, ...]
_UNSET = -1
_MANY = MAX_INSTRUCTIONS + 1


class RegexFault(ValueError):
    """A pattern that cannot be used; the text says why."""


class TooManyStepsError(Exception):
    """What a text was matched with has taken all the steps that it may."""


class Steps:
    """How many steps may still be done; one of it for all that is done with one text."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, steps: int) -> None:
        """Raises :class:`TooManyStepsError`."""
        self.left -= steps
        if self.left < 0:
            raise TooManyStepsError


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


class _Look(NamedTuple):
    body: _Node
    is_ahead: bool
    is_negative: bool


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


_Node = _Char | _At | _Look | _Group | _Sequence | _Choice | _Repeat


# The program


class _Split(NamedTuple):
    first: int
    second: int


class _Jump(NamedTuple):
    to: int


class _Save(NamedTuple):
    slot: int


class _AtLook(NamedTuple):
    number: int


class _End(NamedTuple):
    pass


_Instruction = _Char | _At | _AtLook | _Split | _Jump | _Save | _End
_Places = list[bool]
"""For each place of a text, its end included, whether something holds there."""


class LinearRegex:
    """One pattern, ready to match."""

    def __init__(self, pattern: str, max_instructions: int = MAX_INSTRUCTIONS) -> None:
        """Raises :class:`RegexFault`."""
        parser = _Parser(pattern)
        tree = parser.parse()
        self.pattern = pattern
        self.group_count = parser.group_count
        self.group_names = parser.names
        self._program = _Program(_Group(0, tree), max_instructions)
        self._looked: tuple[str, list[_Places]] | None = None

    def fullmatch(self, text: str, steps: Steps | None = None) -> Found | None:
        """Where the pattern matches, if it matches the whole of ``text``."""
        return self._run(text, 0, steps, whole=True)

    def search(self, text: str, start: int = 0, steps: Steps | None = None) -> Found | None:
        """The first place at or behind ``start`` at which the pattern matches."""
        return self._run(text, start, steps, whole=False)

    def _run(self, text: str, start: int, steps: Steps | None, *, whole: bool) -> Found | None:
        looks = self._looks(text, steps)
        nothing: _Captures = (_UNSET,) * (2 * (self.group_count + 1))
        best: _Captures | None = None
        threads: list[tuple[int, _Captures]] = []
        for pos in range(start, len(text) + 1):
            if best is None and (pos == start or not whole):
                threads.append((0, nothing))
            if not threads:
                break
            threads, ended = self._advance(threads, text, pos, looks, steps, whole=whole)
            best = ended or best
        return None if best is None else _found(text, best)

    def _looks(self, text: str, steps: Steps | None) -> list[_Places]:
        """Where what looks around holds; kept for the next search in the same text."""
        known = self._looked
        if known is None or known[0] != text:
            known = self._looked = text, self._program.looks(text, steps)
        return known[1]

    def _advance(
        self,
        threads: list[tuple[int, _Captures]],
        text: str,
        pos: int,
        looks: list[_Places],
        steps: Steps | None,
        *,
        whole: bool,
    ) -> tuple[list[tuple[int, _Captures]], _Captures | None]:
        """Those that take the character at ``pos``, and the first that ends before it."""
        seen: set[int] = set()
        taken: list[tuple[int, _Captures]] = []
        char = text[pos] if pos < len(text) else None
        stack = threads[::-1]
        ended: _Captures | None = None
        while stack:
            at, captures = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._program.instructions[at]
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
            elif isinstance(instruction, _AtLook):
                if looks[instruction.number][pos]:
                    stack.append((at + 1, captures))
            elif char is None or not whole:
                ended = captures
                break
        if steps is not None:
            steps.take(len(seen))
        return taken, ended


class _Program:
    """A tree as instructions, with a program for each look around."""

    def __init__(self, tree: _Node, most: int, used: int = 0) -> None:
        """Raises :class:`RegexFault` for one that, with what is used, comes to more than ``most``."""
        self._most = most
        self._used = used
        self.instructions: list[_Instruction] = []
        self._looks: list[tuple[_Look, _Program]] = []
        self._emit(tree)
        self._add(_End())

    def __len__(self) -> int:
        return len(self.instructions) + sum(len(program) for _, program in self._looks)

    # Compiling

    def _add(self, instruction: _Instruction) -> int:
        if self._used + len(self) >= self._most:
            raise RegexFault(f"it is too long: it comes to more than {self._most} steps")
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def _emit(self, node: _Node) -> None:
        if isinstance(node, _Char | _At):
            self._add(node)
        elif isinstance(node, _Look):
            self._looks.append((node, _Program(node.body, self._most, self._used + len(self))))
            self._add(_AtLook(len(self._looks) - 1))
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
            self.instructions[split] = _Split(split + 1, len(self.instructions))
        self._emit(ways[-1])
        for end in ends:
            self.instructions[end] = _Jump(len(self.instructions))

    def _emit_repeat(self, node: _Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.body)
        if node.most is None:
            split = self._add(_Jump(0))
            self._emit(node.body)
            self._add(_Jump(split))
            self.instructions[split] = self._way_in_or_out(split, node)
            return
        splits: list[int] = []
        for _ in range(node.most - node.least):
            splits.append(self._add(_Jump(0)))
            self._emit(node.body)
        for split in splits:
            self.instructions[split] = self._way_in_or_out(split, node)

    def _way_in_or_out(self, split: int, node: _Repeat) -> _Split:
        into, out = split + 1, len(self.instructions)
        return _Split(out, into) if node.is_lazy else _Split(into, out)

    # Looking around

    def looks(self, text: str, steps: Steps | None) -> list[_Places]:
        """For each look around of this program, where it holds."""
        found: list[_Places] = []
        for look, program in self._looks:
            inner = program.looks(text, steps)
            places = (program._begins if look.is_ahead else program._ends)(text, inner, steps)
            found.append([each != look.is_negative for each in places])
        return found

    def _begins(self, text: str, looks: list[_Places], steps: Steps | None) -> _Places:
        """The places at which a match begins: backwards, with all instructions that lead to the end."""
        leads_to = self._led_from()
        places: _Places = []
        later: set[int] = set()
        for pos in range(len(text), -1, -1):
            leading: set[int] = set()
            stack = [len(self.instructions) - 1]
            stack += (at - 1 for at in later if self._takes(at - 1, text[pos]))
            while stack:
                at = stack.pop()
                if at in leading or not self._holds(at, text, pos, looks):
                    continue
                leading.add(at)
                stack += leads_to[at]
            places.append(0 in leading)
            later = leading
            if steps is not None:
                steps.take(len(leading))
        places.reverse()
        return places

    def _ends(self, text: str, looks: list[_Places], steps: Steps | None) -> _Places:
        """The places at which a match ends that began anywhere."""
        places: _Places = []
        stack: list[int] = []
        for pos in range(len(text) + 1):
            seen: set[int] = set()
            stack.append(0)
            while stack:
                at = stack.pop()
                if at in seen or not self._holds(at, text, pos, looks):
                    continue
                seen.add(at)
                stack += self._next(at)
            places.append(len(self.instructions) - 1 in seen)
            if pos < len(text):
                stack = [at + 1 for at in seen if self._takes(at, text[pos])]
            if steps is not None:
                steps.take(len(seen))
        return places

    def _takes(self, at: int, char: str) -> bool:
        instruction = self.instructions[at] if at >= 0 else None
        return isinstance(instruction, _Char) and instruction.test(char)

    def _holds(self, at: int, text: str, pos: int, looks: list[_Places]) -> bool:
        instruction = self.instructions[at]
        if isinstance(instruction, _At):
            return instruction.holds(text, pos)
        return not isinstance(instruction, _AtLook) or looks[instruction.number][pos]

    def _next(self, at: int) -> Sequence[int]:
        """Where an instruction leads without a character."""
        instruction = self.instructions[at]
        if isinstance(instruction, _Split):
            return instruction.first, instruction.second
        if isinstance(instruction, _Jump):
            return (instruction.to,)
        return () if isinstance(instruction, _Char | _End) else (at + 1,)

    def _led_from(self) -> list[list[int]]:
        sources: list[list[int]] = [[] for _ in self.instructions]
        for at in range(len(self.instructions)):
            for to in self._next(at):
                sources[to].append(at)
        return sources


def _found(text: str, captures: _Captures) -> Found:
    pairs = zip(captures[::2], captures[1::2], strict=True)
    groups = tuple(None if _UNSET in (start, end) else text[start:end] for start, end in pairs)
    return Found(captures[0], captures[1], groups)


# Reading

_WORD = chars_of(POSIX["word"])
_CLASSES = {"d": chars_of(POSIX["digit"]), "w": _WORD, "s": chars_of(POSIX["space"])}
_NAMES = "Lower Upper Alpha Digit Alnum Punct Graph Print Blank XDigit Space ASCII"
_PROPERTIES = {name: chars_of(POSIX[name.lower()]) for name in _NAMES.split()}
_CATEGORIES = ("L", "Lu", "Ll", "N", "Nd", "P", "S")
_CASED = ("Lower", "Upper", "Lu", "Ll")
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


_AROUND = {"=": (True, False), "!": (True, True), "<=": (False, False), "<!": (False, True)}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._pos = 0
        self._depth = 0
        self._looking = 0
        self._ignores_case = False
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
        return _Char(self._in_either_case(char.__eq__))

    def _group(self) -> _Node:
        number, look = None, None
        had_flag = self._ignores_case
        if self._takes("?"):
            look = self._look()
            if look is None and self._takes("<"):
                number = self._named()
            elif look is None and self._flag():
                return _Sequence(())
        else:
            number = self._next_number()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RegexFault(f"it has groups in groups, more than {MAX_DEPTH} deep")
        self._looking += look is not None
        body = self._choice()
        self._looking -= look is not None
        self._depth -= 1
        self._ignores_case = had_flag
        if not self._takes(")"):
            raise RegexFault("it has a ( without a )")
        if look is not None:
            if not look[0] and not _is_bounded(body):
                raise RegexFault("it looks behind by no known length; write {0,20}, say, for * or +")
            return _Look(body, *look)
        return body if number is None else _Group(number, body)

    def _look(self) -> tuple[bool, bool] | None:
        """Whether a group looks ahead and is negated, if it looks around."""
        for symbol, look in _AROUND.items():
            if self._takes(symbol):
                return look
        return None

    def _flag(self) -> bool:
        """Whether a flag stands alone and goes for the rest of the group around it."""
        if self._takes(":"):
            return False
        for symbol, ignores_case in (("i", True), ("-i", False)):
            for end in (":", ")"):
                if self._takes(symbol + end):
                    self._ignores_case = ignores_case
                    return end == ")"
        raise RegexFault(
            "it has a group that begins with ?, of which only (?:, (?<name>, (?i), (?i:, (?=, (?!, (?<= and "
            "(?<! are known"
        )

    def _next_number(self) -> int:
        if self._looking:
            raise RegexFault("it has a group that captures within one that looks around; write (?: there")
        self.group_count += 1
        return self.group_count

    def _named(self) -> int:
        name, closing, _ = self._text[self._pos :].partition(">")
        if not closing or not name.isascii() or not name.isalnum() or name[0].isdigit() or name in self.names:
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
        if char in "pP":
            return self._property(char)
        return self._in_either_case(self._literal(char).__eq__)

    def _in_either_case(self, test: _CharTest) -> _CharTest:
        """As Java has it without a flag for more: ASCII's letters only."""
        if not self._ignores_case:
            return test
        return lambda char: test(char) or (char.isascii() and (test(char.lower()) or test(char.upper())))

    def _property(self, char: str) -> _CharTest:
        name = self._take()
        if name == "{":
            name, closing, _ = self._text[self._pos :].partition("}")
            self._pos += len(name) + len(closing)
        if (name not in _PROPERTIES and name not in _CATEGORIES) or (name in _CASED and self._ignores_case):
            raise RegexFault(f"it has \\{char}{{{name}}}, which is not known here")
        members = _PROPERTIES.get(name)
        is_negated = char == "P"

        def test(each: str) -> bool:
            has = unicodedata.category(each).startswith(name) if members is None else each in members
            return has != is_negated

        return test

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
                if escaped.lower() in _CLASSES or escaped in "pP":
                    classes.append(self._class_or_char(escaped))
                    continue
                char = self._literal(escaped)
            ranges.append((char, self._end_of_range(char)))
        self._take()

        in_ranges = self._in_either_case(lambda char: any(low <= char <= high for low, high in ranges))
        return lambda char: (in_ranges(char) or any(each(char) for each in classes)) != is_negated

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


def _is_bounded(node: _Node) -> bool:
    if isinstance(node, _Group):
        return _is_bounded(node.body)
    if isinstance(node, _Sequence):
        return all(map(_is_bounded, node.parts))
    if isinstance(node, _Choice):
        return all(map(_is_bounded, node.ways))
    return not isinstance(node, _Repeat) or (node.most is not None and _is_bounded(node.body))


def _may_be_empty(node: _Node) -> bool:
    if isinstance(node, _Char):
        return False
    if isinstance(node, _At | _Look):
        return True
    if isinstance(node, _Group):
        return _may_be_empty(node.body)
    if isinstance(node, _Sequence):
        return all(map(_may_be_empty, node.parts))
    if isinstance(node, _Choice):
        return any(map(_may_be_empty, node.ways))
    return node.least == 0 or _may_be_empty(node.body)
