"""All cases, module by module."""

from __future__ import annotations

from tests.compat.side_by_side import produce_requests
from tests.compat.side_by_side.cases import CASES

__all__ = ["CASES", "produce_requests"]
