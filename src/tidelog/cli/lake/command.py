"""``tidelog lake``: see how the lake's tables stand, compact them, forget old snapshots.

Works on the lake of a pipelines' directory while the pipelines run; needs no broker and no Spark.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.lake.options import DEFAULT_CATALOG, DEFAULT_DIRECTORY, CatalogOptions, Directory
from tidelog.cli.output import examples, print_json, print_table
from tidelog.cli.shared_options import JsonOutput, grouped

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tidelog.spark.lake.catalog import LakeCatalog

app = typer.Typer()

_EXTRA = ("pyiceberg", "pyarrow", "sqlalchemy")
_INSTALL = 'the lake needs PyIceberg, which is not installed: pip install "tidelog[spark]"'
_UNITS_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_AGE = re.compile(r"\s*(\d+)\s*(s|min|h|d)\s*")
_SIZES = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_SIZE = re.compile(r"\s*(\d+)\s*(KB|MB|GB|)\s*")

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE…]", help="Tables; all if none.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@app.command(epilog=examples("tidelog lake status", "tidelog lake status credit --json"))
@grouped
def status(
    names: Names = None,
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    catalog: CatalogOptions = DEFAULT_CATALOG,
) -> None:
    """Show rows, files, snapshots and the last batch of the lake's tables."""
    tables = _tables(_opened(directory, catalog), names)
    from tidelog.spark.lake.figures import figures

    found = [figures(table) for table in tables]
    if json:
        print_json(found)
        return
    rows = [
        (
            each.table,
            each.rows,
            each.files,
            each.small_files,
            size_text(each.size_bytes),
            each.first_day,
            each.last_day,
            each.snapshots,
            None if each.committed_at is None else f"{each.committed_at:%Y-%m-%d %H:%M:%SZ}",
            max(each.batches.values(), default=None),
        )
        for each in found
    ]
    columns = ("table", "rows", "files", "small", "size", "first day", "last day", "snapshots", "committed")
    numbers = ("rows", "files", "small", "size", "snapshots", "last batch")
    print_table(
        (*columns, "last batch"), rows, right=numbers, optional=("last batch", "committed", "first day")
    )


@app.command(epilog=examples("tidelog lake files credit", "tidelog lake files credit --day 2026-11-01"))
@grouped
def files(
    names: Names = None,
    day: Annotated[
        str | None, typer.Option("--day", metavar="DATE", help="Only this day.", show_default=False)
    ] = None,
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    catalog: CatalogOptions = DEFAULT_CATALOG,
) -> None:
    """List the data files that make up tables now, for readers of Parquet that know no Iceberg."""
    wanted = None if day is None else _day(day)
    tables = _tables(_opened(directory, catalog), names)
    from tidelog.spark.lake.figures import data_files

    found = [file for table in tables for file in data_files(table) if day is None or file.day == wanted]
    found.sort(key=lambda file: (file.table, file.day or date.min, file.path))
    if json:
        print_json(found)
        return
    rows = [(each.table, each.day, each.rows, each.size_bytes, each.path) for each in found]
    print_table(("table", "day", "rows", "bytes", "path"), rows, right=("rows", "bytes"))


@app.command(epilog=examples("tidelog lake compact --dry-run", "tidelog lake compact credit"))
@grouped
def compact(
    names: Names = None,
    dry_run: DryRun = False,
    target: Annotated[
        str, typer.Option("--target-size", metavar="SIZE", help="How large files shall become, as `128MB`.")
    ] = "128MB",
    min_files: Annotated[
        int,
        typer.Option("--min-files", metavar="N", min=2, help="Days with fewer small files are left alone."),
    ] = 2,
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    catalog: CatalogOptions = DEFAULT_CATALOG,
) -> None:
    """Make few large files of many small ones, day by day, row for row; pipelines and readers go on."""
    target_bytes = _size(target, "--target-size")
    tables = _tables(_opened(directory, catalog), names)
    from tidelog.cli.lake import upkeep

    upkeep.compact(tables, target_bytes, min_files, dry_run=dry_run, json=json)


@app.command(epilog=examples("tidelog lake expire --dry-run", "tidelog lake expire --older-than 1d --keep 5"))
@grouped
def expire(
    names: Names = None,
    dry_run: DryRun = False,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="AGE", help="Forget snapshots that are older, as `7d` or `12h`."
        ),
    ] = "7d",
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Keep the newest ones, however old they are.")
    ] = 10,
    grace: Annotated[
        str,
        typer.Option(
            "--files-older-than",
            metavar="AGE",
            help="Remove files that no snapshot names when nobody touched them for so long.",
        ),
    ] = "1d",
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    catalog: CatalogOptions = DEFAULT_CATALOG,
) -> None:
    """Forget old snapshots; remove files that belong to none: replaced ones, and what crashes have left."""
    older_than_s, grace_s = _age(older_than, "--older-than"), _age(grace, "--files-older-than")
    tables = _tables(_opened(directory, catalog), names)
    from tidelog.cli.lake import upkeep
    from tidelog.spark.lake.expiry import ExpiryRule

    rule = ExpiryRule(older_than_s, keep, grace_s)
    upkeep.expire(tables, rule, directory / "lake", dry_run=dry_run, json=json)


def _require() -> None:
    """Raise one sentence where the extra is not installed."""
    if any(importlib.util.find_spec(module) is None for module in _EXTRA):
        raise Failure(_INSTALL)


def _opened(directory: Path, options: CatalogOptions) -> LakeCatalog:
    from tidelog.spark.lake.lake_note import LakeSettings, lake_note

    settings = LakeSettings(
        directory / "lake", options.lake_catalog, options.properties, options.lake_warehouse
    )
    # One that is only in a catalog, of another machine, has no directory here.
    if lake_note(settings) is None and options.lake_catalog is None:
        raise Failure(f"there is no lake in {directory}: give the --directory of the pipelines")
    _require()
    from tidelog.spark.lake.catalog import LakeCatalog

    return LakeCatalog(settings)


def _tables(catalog: LakeCatalog, names: Sequence[str] | None) -> list[Table]:
    return [catalog.table(name) for name in (dict.fromkeys(names) if names else catalog.names())]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"--day {text!r} is no day: write 2026-11-01") from None


def _age(text: str, option: str) -> float:
    found = _AGE.fullmatch(text)
    if found is None:
        raise WrongUsage(f"{option} {text!r} is no age: write 7d, 12h, 30min or 0s")
    return float(int(found[1]) * _UNITS_S[found[2]])


def _size(text: str, option: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise WrongUsage(f"{option} {text!r} is no size: write 128MB or 1GB")
    return int(found[1]) * _SIZES[found[2]]


def size_text(size_bytes: int) -> str:
    """``870 B``, ``12.5 MB``."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes all")
