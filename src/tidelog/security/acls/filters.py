"""Which access rules are meant: the filters of DescribeAcls and DeleteAcls, with Kafka's rules of matching.

``None`` and ANY leave a field open. Of pattern types, MATCH means every pattern that a resource of the name
falls under: the literal one, the wildcard and all prefixes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.security.acls.model import (
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of access rules; an omitted field matches everything.

    Args:
        resource_type: The kind of resources.
        name: Their name.
        pattern_type: How rules name them; ``MATCH`` means all patterns that a resource of this name falls
            under.
        principal: Who, as ``User:ann``.
        host: From where.
        operation: What.
        permission: Whether the rule allows or denies.

    Example:
        AclFilter(principal="User:ann")
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether a rule is among those meant."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether rules with this pattern may be among those meant."""
        if self.resource_type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether a rule is among those meant, whatever its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )
