"""Why a field could not be decoded."""

from __future__ import annotations

from tidelog.errors import TidelogError


class DecodeProblem(TidelogError):
    """A sentence for people; it holds nothing of the field, which may be masked."""
