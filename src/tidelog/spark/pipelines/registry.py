"""The pipelines by name; each is loaded, and Spark with it, when it is asked for.

Called by the command line and ``make run``.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from tidelog.errors import TidelogError
from tidelog.spark.pipelines.pipeline import Pipeline

PIPELINES = {
    "collect": "tidelog_rewards.jobs.collect.job",
    "account-switch": "tidelog_rewards.jobs.account_switch.job",
    "invite-fraud": "tidelog_rewards.jobs.invite_fraud.job",
    "phone-region": "tidelog_rewards.jobs.phone_region.job",
    "earnings": "tidelog_rewards.jobs.earnings.job",
}
"""Names, and the modules that define ``PIPELINE``."""


class UnknownPipelineError(TidelogError):
    """There is no pipeline of that name."""


def all_pipelines() -> list[Pipeline]:
    """Every pipeline."""
    return [load(name) for name in PIPELINES]


def load(name: str) -> Pipeline:
    """The pipeline of that name."""
    module = PIPELINES.get(name)
    if module is None:
        near = get_close_matches(name, PIPELINES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(PIPELINES)}"
        raise UnknownPipelineError(f"there is no pipeline {name}: {hint}")
    pipeline = importlib.import_module(module).PIPELINE
    assert isinstance(pipeline, Pipeline)
    return pipeline
