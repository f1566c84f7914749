"""`tidelog features` on a broker of its own, whose levels it changes."""

from __future__ import annotations

from pathlib import Path

from tests.integration.command_line import CommandLine

from tidelog.testing.broker_process import BrokerProcess


def test_features_are_described_lowered_and_raised(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        tidelog = CommandLine(broker.bootstrap)

        def level() -> int:
            found = tidelog.json("features", "describe")["features"]
            return int(next(each["level"] for each in found if each["feature"] == "transaction.version"))

        assert level() == 2
        would = tidelog.ok("features", "downgrade", "transaction.version=1", "--dry-run")
        assert would == "could change transaction.version from level 2 to 1\n"
        assert level() == 2
        tidelog.ok("features", "downgrade", "transaction.version=1")
        assert level() == 1
        raised = tidelog("features", "upgrade", "--all")
        assert raised.stdout == "changed transaction.version from level 1 to 2\n"
        assert raised.stderr == "group.version is already at level 1\n"
        assert "transaction.version\t0\t2\t2" in tidelog.ok("features", "describe").splitlines()

        assert "features downgrade" in tidelog.refusal("features", "upgrade", "transaction.version=1")
        assert "features upgrade" in tidelog.refusal("features", "downgrade", "transaction.version=3")
        assert "only supports versions" in tidelog.refusal("features", "upgrade", "transaction.version=9")
        assert "brokers support group.version" in tidelog.refusal("features", "upgrade", "metadata.vers=1")
        assert tidelog("features", "upgrade", "group.version=one").returncode == 2
