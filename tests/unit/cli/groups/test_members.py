"""`tidelog groups describe` on a terminal: what members say of themselves moves no cursor."""

from __future__ import annotations

import pytest

from tidelog.cli.groups import members
from tidelog.cli.groups.state import headline
from tidelog.client.admin.group_resources import GroupDescription, MemberDescription
from tidelog.ids import TopicPartition

HOSTILE = "a\x1b[2J\nb"
GROUP = GroupDescription(
    HOSTILE,
    protocol_type=HOSTILE,
    assignor=HOSTILE,
    members=(
        MemberDescription(
            HOSTILE,
            HOSTILE,
            "10.0.0.1",
            instance_id=HOSTILE,
            rack_id=HOSTILE,
            topics=(HOSTILE,),
            assignment=(TopicPartition(HOSTILE, 0),),
        ),
    ),
)


def test_a_headline_is_one_line() -> None:
    assert headline(GROUP).isprintable()
    assert headline(GROUP).startswith(r"a\x1b[2J\nb  (")


@pytest.mark.parametrize("verbose", [False, True])
def test_members_are_shown_without_control_characters(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(members, "is_terminal", lambda: True)
    members.print_members([GROUP], verbose=verbose)
    printed = capsys.readouterr().out
    assert r"a\x1b[2J\nb" in printed
    assert all(line.replace("\t", " ").isprintable() for line in printed.splitlines())
