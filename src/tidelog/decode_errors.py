"""The errors of msgspec for bytes that are not as expected, for code that decodes untrusted input.

These are more than msgspec's own: text that is not UTF-8 raises ``UnicodeError``, and input nested deeper
than Python's stack raises ``RecursionError``. Code that does not catch these two is stopped by any writer.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number to calculate with: a plain ``int`` takes hundreds of digits, which no float and no time holds."""

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
