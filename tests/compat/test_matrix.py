"""docs/reference/compatibility.md and the suite say the same."""

from __future__ import annotations

from pathlib import Path

from tests.compat import matrix, test_clients, test_groups
from tests.compat.clients import CLIENTS, FEATURES


def test_the_printed_table_is_current() -> None:
    assert matrix.PAGE.read_text() == matrix.page(), "run `python -m tests.compat.matrix`"


def test_every_feature_has_a_test_and_every_gap_is_a_feature() -> None:
    source = "".join(Path(str(suite.__file__)).read_text() for suite in (test_clients, test_groups))
    checked = {feature for feature in FEATURES if f'@pytest.mark.needs("{feature}")' in source}
    assert checked == set(FEATURES)
    assert {feature for client in CLIENTS for feature in client.lacks} <= set(FEATURES)
