"""The settings that only these pipelines have: how they write phone numbers, and the rules of detection.

They are an extension of ``PipelineSettings``: ``settings.extension(RewardsSettings)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "vi", "zh")
"""In which there are names of countries; of places and carriers in some of them."""


@dataclass(frozen=True, slots=True)
class PhoneSettings:
    """How phone numbers are read, and what is written in their place."""

    clear: bool = False
    """The numbers themselves are written, instead of tokens."""
    keys: Path | None = None
    """The file with the keys of the tokens; None makes one in the pipelines' directory."""
    country: str = "CN"
    """Where a number without an international prefix is from: the app's home market."""
    language: str = "en"
    """Of countries, places and carriers; their Chinese names are there in any case."""


@dataclass(frozen=True, slots=True)
class RewardsSettings:
    """Phone numbers and rules."""

    phones: PhoneSettings = PhoneSettings()
    rules: Path | None = None
    """A file of rules for the detecting pipelines; None: those of the package."""
    allow_cut_log: bool = False
    """A backfill of a detecting pipeline uses the records that are left after retention has deleted some."""
