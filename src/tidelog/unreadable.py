"""What msgspec raises where bytes are not what was expected, for all who read what others may have written.

It is more than msgspec's own errors: text that is no UTF-8 raises ``UnicodeError``, and what is nested deeper
than Python's stack ``RecursionError``. A reader that forgets these two is stopped by anybody who can write.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that somebody reckons with: ``int`` takes hundreds of digits, which no float and no time has."""

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
