"""Access rules by resource: those about one are found with a few look-ups, however many others there are.

A pattern's rules are kept by principal. Literal patterns are found by name; prefixed ones by the beginnings
of the name, of which only the lengths that some prefix has are tried. Written by whatever keeps rules
(``metadata/acl_store``, ``tidelog acls explain``), read by the authorizer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    STORED_PATTERN_TYPES,
    STORED_RESOURCE_TYPES,
    WILDCARD,
    AclBinding,
    AclEntry,
    PatternType,
    ResourcePattern,
    ResourceType,
)


class PatternRules:
    """The rules of one pattern."""

    __slots__ = ("_by_principal", "entries", "pattern")

    def __init__(self, pattern: ResourcePattern, entries: tuple[AclEntry, ...]) -> None:
        self.pattern = pattern
        self.entries = entries
        by_principal: dict[str, list[AclEntry]] = defaultdict(list)
        for entry in entries:
            by_principal[entry.principal].append(entry)
        self._by_principal = dict(by_principal)

    @property
    def principals(self) -> Iterable[str]:
        """Those whom rules name."""
        return self._by_principal.keys()

    def of(self, principal: str) -> list[AclEntry]:
        """Those that name this principal."""
        return self._by_principal.get(principal, _NONE)


_NONE: list[AclEntry] = []


class RuleIndex:
    """All access rules that are in force."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._literal: dict[ResourceType, dict[str, PatternRules]] = {
            kind: {} for kind in STORED_RESOURCE_TYPES
        }
        self._prefixed: dict[ResourceType, dict[str, PatternRules]] = {
            kind: {} for kind in STORED_RESOURCE_TYPES
        }
        self._lengths: dict[ResourceType, dict[int, int]] = {kind: {} for kind in STORED_RESOURCE_TYPES}
        """How many prefixes there are of each length."""
        self._naming: dict[tuple[ResourceType, PatternType, str], dict[str, PatternRules]] = defaultdict(dict)
        """The patterns whose rules name a principal, so that nobody has to look through all of them."""
        by_pattern: dict[ResourcePattern, list[AclEntry]] = defaultdict(list)
        for pattern, entry in bindings:
            by_pattern[pattern].append(entry)
        for pattern, entries in by_pattern.items():
            self.put(pattern, entries)

    def put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> bool:
        """Replace all rules of a pattern; none take the pattern away. Whether that changed anything."""
        unique = tuple(dict.fromkeys(entries))
        patterns = self._patterns(pattern)
        old = patterns.get(pattern.name)
        if (old.entries if old is not None else ()) == unique:
            return False
        if old is not None:
            for principal in old.principals:
                self._forget(pattern, principal)
        if unique:
            rules = patterns[pattern.name] = PatternRules(pattern, unique)
            for principal in rules.principals:
                self._naming[pattern.type, pattern.pattern_type, principal][pattern.name] = rules
        else:
            del patterns[pattern.name]
        if pattern.pattern_type is PatternType.PREFIXED and (old is None or not unique):
            self._count(pattern, 1 if unique else -1)
        return True

    def entries(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        """The rules of exactly this pattern."""
        found = self._patterns(pattern).get(pattern.name)
        return found.entries if found is not None else ()

    def patterns(self) -> Iterator[ResourcePattern]:
        """All patterns that have rules."""
        for kind in STORED_RESOURCE_TYPES:
            for by_name in (self._literal[kind], self._prefixed[kind]):
                for rules in by_name.values():
                    yield rules.pattern

    def applying(self, kind: ResourceType, name: str) -> Iterator[PatternRules]:
        """The patterns that a resource falls under, the closest first: its name, prefixes, the wildcard."""
        literal = self._literal[kind]
        found = literal.get(name)
        if found is not None:
            yield found
        lengths = self._lengths[kind]
        if lengths:
            prefixed = self._prefixed[kind]
            for length in lengths:
                found = prefixed.get(name[:length]) if length <= len(name) else None
                if found is not None:
                    yield found
        found = literal.get(WILDCARD) if name != WILDCARD else None
        if found is not None:
            yield found

    def naming(self, principal: str, kind: ResourceType, pattern_type: PatternType) -> Iterable[PatternRules]:
        """The patterns of one kind with rules that name this principal."""
        found = self._naming.get((kind, pattern_type, principal))
        return found.values() if found is not None else ()

    def __iter__(self) -> Iterator[AclBinding]:
        return (AclBinding(pattern, entry) for pattern in self.patterns() for entry in self.entries(pattern))

    def candidates(self, wanted: AclFilter) -> list[ResourcePattern]:
        """The patterns whose rules a filter may mean."""
        if wanted.name is None or wanted.resource_type is ResourceType.ANY:
            return [each for each in self.patterns() if wanted.matches_pattern(each)]
        if wanted.pattern_type is PatternType.MATCH:
            found = [rules.pattern for rules in self.applying(wanted.resource_type, wanted.name)]
        else:
            found = [
                ResourcePattern(wanted.resource_type, wanted.name, pattern_type)
                for pattern_type in STORED_PATTERN_TYPES
            ]
        return [each for each in found if wanted.matches_pattern(each)]

    def __len__(self) -> int:
        return sum(len(self.entries(pattern)) for pattern in self.patterns())

    def _patterns(self, pattern: ResourcePattern) -> dict[str, PatternRules]:
        prefixed = pattern.pattern_type is PatternType.PREFIXED
        return (self._prefixed if prefixed else self._literal)[pattern.type]

    def _forget(self, pattern: ResourcePattern, principal: str) -> None:
        key = (pattern.type, pattern.pattern_type, principal)
        naming = self._naming[key]
        del naming[pattern.name]
        if not naming:
            del self._naming[key]

    def _count(self, pattern: ResourcePattern, change: int) -> None:
        lengths = self._lengths[pattern.type]
        count = lengths.get(len(pattern.name), 0) + change
        if count:
            lengths[len(pattern.name)] = count
        else:
            del lengths[len(pattern.name)]
        # The longest first, so that the closest rule is named.
        self._lengths[pattern.type] = dict(sorted(lengths.items(), reverse=True))
