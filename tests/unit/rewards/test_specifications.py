"""The specifications say the same as the implementations, and the package is released with Tidelog."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

from tidelog.version import __version__
from tidelog_rewards.jobs.account_switch import schema as account_switch
from tidelog_rewards.jobs.earnings.schema import TABLES, TOPIC
from tidelog_rewards.jobs.invite_fraud import schema as invite_fraud
from tidelog_rewards.pipelines import ACCOUNT_SWITCH, EARNINGS, INVITE_FRAUD, PIPELINES

_PRIVATE = re.compile(r"\btidelog(?:\.\w+)*\._\w+|from tidelog[\w.]* import (?:\w+, )*_\w+")
PROJECT = tomllib.loads((Path(__file__).parents[3] / "apps/rewards/pyproject.toml").read_text())["project"]


def test_both_distributions_have_one_version() -> None:
    assert PROJECT["version"] == __version__
    assert f"tidelog[spark]=={__version__}" in PROJECT["dependencies"]


def test_names_and_outputs_are_those_of_the_implementations() -> None:
    assert (ACCOUNT_SWITCH.name, INVITE_FRAUD.name) == (account_switch.NAME, invite_fraud.NAME)
    assert EARNINGS.outputs == (*(f"table {table}" for table in TABLES), f"topic {TOPIC}")


def test_what_is_named_by_a_string_exists() -> None:
    for pipeline in PIPELINES:
        for module in pipeline.preload:
            importlib.import_module(module)
        for place in (pipeline.run_options, pipeline.backfill_options):
            module, _, name = str(place).partition(":")
            assert hasattr(importlib.import_module(module), name)


def test_entry_points_name_objects_that_exist() -> None:
    for group in PROJECT["entry-points"].values():
        for place in group.values():
            module, _, name = place.partition(":")
            assert hasattr(importlib.import_module(module), name)


def test_only_public_modules_of_tidelog_are_imported() -> None:
    sources = (Path(__file__).parents[3] / "apps/rewards/src").rglob("*.py")
    named = [name for path in sources for name in _PRIVATE.findall(path.read_text(encoding="utf-8"))]
    assert named == []
