"""``tidelog features``: which features a cluster uses, at which levels, and changing these (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from tidelog.cli.connect import parse_assignments, with_admin
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.output import Changes, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, DryRun, JsonOutput, grouped
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import FeatureMetadata, FeatureUpdate, UpgradeType

app = typer.Typer()

Levels = Annotated[
    list[str] | None,
    typer.Argument(metavar="FEATURE=LEVEL", help="The features and their new levels.", show_default=False),
]


@app.command(epilog=examples("tidelog features describe", "tidelog features describe --broker 2 --json"))
@grouped
def describe(
    broker: Annotated[
        int | None,
        typer.Option("--broker", "-B", metavar="ID", help="The broker to query; default: any."),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show features: the levels that a broker supports, and the level in force in the cluster."""
    found = with_admin(connection, lambda admin: admin.describe_features(broker))
    names = sorted({*found.supported, *found.finalized})
    if json:
        print_json({"epoch": found.finalized_epoch, "features": [_as_json(found, name) for name in names]})
        return
    if not names and is_terminal():
        remark("this broker reports no features: they require Kafka 2.7 or later")
        return
    rows = [(name, *_supported(found, name), level_of(found, name)) for name in names]
    print_table(("feature", "lowest", "highest", "level"), rows, right=("lowest", "highest", "level"))
    if is_terminal() and found.finalized_epoch is not None:
        remark(f"epoch {found.finalized_epoch}; level 0 is off")


@app.command(
    epilog=examples(
        "tidelog features upgrade transaction.version=2",
        "tidelog features upgrade --all --dry-run",
    ),
    no_args_is_help=True,
)
@grouped
def upgrade(
    levels: Levels = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Upgrade every feature to its highest supported level.")
    ] = False,
    dry_run: DryRun = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Raise the levels of features, for all brokers at once; all of them change, or none."""
    if bool(levels) is everything:
        raise WrongUsage("specify what to upgrade: FEATURE=LEVEL (one or more), or --all")
    wanted = parse_levels(levels)

    async def change(admin: AsyncAdmin) -> None:
        found = await admin.describe_features()
        chosen = {name: each.max_version for name, each in found.supported.items()} if everything else wanted
        _check_known(found, chosen)
        lower = {name: level for name, level in chosen.items() if level < level_of(found, name)}
        for name, level in lower.items():
            raise Failure(
                f"{name} is at level {level_of(found, name)}, above {level}: "
                f"`tidelog features downgrade {name}={level}` lowers it"
            )
        await _update(admin, found, chosen, UpgradeType.UPGRADE, dry_run=dry_run, json=json)

    with_admin(connection, change)


@app.command(
    epilog=examples(
        "tidelog features downgrade transaction.version=1",
        "tidelog features downgrade group.version=0 --dry-run",
    ),
    no_args_is_help=True,
)
@grouped
def downgrade(
    levels: Levels = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also downgrade if metadata of the higher level is lost.")
    ] = False,
    dry_run: DryRun = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Lower the levels of features, for all brokers at once; level 0 switches one off."""
    if not levels:
        raise WrongUsage("specify what to downgrade: FEATURE=LEVEL (one or more)")
    wanted = parse_levels(levels)
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE

    async def change(admin: AsyncAdmin) -> None:
        found = await admin.describe_features()
        _check_known(found, wanted)
        higher = {name: level for name, level in wanted.items() if level > level_of(found, name)}
        for name, level in higher.items():
            raise Failure(
                f"{name} is at level {level_of(found, name)}, below {level}: "
                f"`tidelog features upgrade {name}={level}` raises it"
            )
        await _update(admin, found, wanted, kind, dry_run=dry_run, json=json)

    with_admin(connection, change)


def parse_levels(texts: list[str] | None) -> dict[str, int]:
    """``["group.version=1"]`` as a mapping."""
    levels: dict[str, int] = {}
    for name, level in parse_assignments(texts, "FEATURE=LEVEL"):
        if not (level.isascii() and level.isdigit()):
            raise WrongUsage(f"{name}={level}: the level must be a number, 0 or above")
        if name in levels:
            raise WrongUsage(f"{name} is specified twice: remove one of them")
        levels[name] = int(level)
    return levels


def level_of(found: FeatureMetadata, name: str) -> int:
    """The level in force; 0 where it is off."""
    return found.finalized[name].max_version if name in found.finalized else 0


def _check_known(found: FeatureMetadata, levels: Mapping[str, int]) -> None:
    for name in levels:
        if name not in found.supported and name not in found.finalized:
            known = ", ".join(sorted(found.supported)) or "none"
            raise Failure(f"unknown feature {name}: the brokers support {known}")


async def _update(
    admin: AsyncAdmin,
    found: FeatureMetadata,
    levels: Mapping[str, int],
    kind: UpgradeType,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    changing = {name: level for name, level in levels.items() if level != level_of(found, name)}
    for name in levels.keys() - changing.keys():
        remark(f"{name} is already at level {levels[name]}")
    updates = {name: FeatureUpdate(level, kind) for name, level in changing.items()}
    results = await admin.update_features(updates, validate_only=dry_run) if updates else []
    verb = "could change" if dry_run else "changed"
    with Changes(json=json) as done:
        for result in results:
            if result.error is not None:
                continue
            level, new_level = level_of(found, result.feature), changing[result.feature]
            done.add(
                f"{verb} {result.feature} from level {level} to {new_level}",
                feature=result.feature,
                from_level=level,
                to_level=new_level,
                changed=not dry_run,
            )
    # A refusal of all is told once.
    errors = {str(result.error): result.error for result in results if result.error is not None}
    report_failures(list(errors.values()))


def _supported(found: FeatureMetadata, name: str) -> tuple[int | None, int | None]:
    supported = found.supported.get(name)
    return (None, None) if supported is None else (supported.min_version, supported.max_version)


def _as_json(found: FeatureMetadata, name: str) -> dict[str, object]:
    lowest, highest = _supported(found, name)
    return {
        "feature": name,
        "supported_min": lowest,
        "supported_max": highest,
        "level": level_of(found, name),
    }
