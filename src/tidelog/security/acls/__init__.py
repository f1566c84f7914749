"""Access rules: what they say, which of them apply, and what follows from it.

model        resources, operations and rules, with Kafka's names and codes
filters      which rules a request to list or remove them means
rule_index   rules by resource, so that those about one are found at once
authorizer   the decision, and the rule that made it
supported    which operations make sense on which resource

Knows nothing of where rules are kept (``metadata/acl_store``) or of who asks
(``broker/access/authorization``, and ``tidelog acls explain``, which decides with the same code).

The names below are those that programs give to ``Admin.create_acls``, ``describe_acls`` and ``delete_acls``:

    AclBinding(
        ResourcePattern(ResourceType.TOPIC, "orders"),
        AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW),
    )
"""

from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

__all__ = [
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "Operation",
    "PatternType",
    "Permission",
    "ResourcePattern",
    "ResourceType",
]
