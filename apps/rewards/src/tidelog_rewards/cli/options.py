"""The options that these pipelines add to ``tidelog pipeline run`` and ``backfill``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.failure import WrongUsage
from tidelog_rewards.settings import LANGUAGES, PhoneSettings, RewardsSettings

RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Rules of the detecting pipelines (TOML); a change is taken at the next micro-batch.",
        show_default=False,
    ),
]
Country = Annotated[
    str,
    typer.Option(
        "--country", metavar="CODE", help="Where numbers without an international prefix are from (ISO 3166)."
    ),
]
Language = Annotated[
    str,
    typer.Option(
        "--language", metavar="CODE", help="Of countries, places and carriers; Chinese is there in any case."
    ),
]
PhoneKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--phone-keys",
        metavar="FILE",
        help="Keys of the tokens that stand for phone numbers; made in DIR if left out.",
        show_default=False,
    ),
]
AllowCutLog = Annotated[
    bool,
    typer.Option(
        "--allow-cut-log",
        help="Of detecting pipelines: judge by what is there, though older records that count are deleted.",
    ),
]
ClearPhones = Annotated[
    bool, typer.Option("--clear-phones", help="Write phone numbers themselves instead of tokens.")
]


@dataclass(frozen=True)
class Phones:
    """How phone numbers are read and written."""

    country: Country = "CN"
    language: Language = "en"
    phone_keys: PhoneKeysFile = None
    clear_phones: ClearPhones = False

    def settings(self) -> PhoneSettings:
        """The same for pipelines; raises where something is not known."""
        if self.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise WrongUsage(f"--language {self.language}: there are names in {known}")
        if importlib.util.find_spec("phonenumbers") is not None:
            from phonenumbers import SUPPORTED_REGIONS

            if self.country not in SUPPORTED_REGIONS:
                raise WrongUsage(f"--country {self.country} is no country: write its ISO 3166 code, as CN")
        return PhoneSettings(self.clear_phones, self.phone_keys, self.country, self.language)


DEFAULT_PHONES = Phones()
"""Stands for the options in the signature of a command."""


@dataclass(frozen=True)
class RunOptions:
    """Of a stream."""

    rules: RulesFile = None
    phones: Phones = DEFAULT_PHONES

    def extension(self) -> RewardsSettings:
        """The same for pipelines; raises where something is not known."""
        return RewardsSettings(self.phones.settings(), self.rules)


@dataclass(frozen=True)
class BackfillOptions:
    """Of a range of time."""

    allow_cut_log: AllowCutLog = False
    rules: RulesFile = None
    phones: Phones = DEFAULT_PHONES

    def extension(self) -> RewardsSettings:
        """The same for pipelines; raises where something is not known."""
        return RewardsSettings(self.phones.settings(), self.rules, self.allow_cut_log)
