"""The options that say which lake is meant, for ``tidelog lake`` and ``tidelog pipeline``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.connect import parse_assignments
from tidelog.cli.failure import WrongUsage

_SECRETS = ("secret", "token", "credential", "key", "password", "connection-string", "authorization")
"""How the names of properties end that nobody else may see."""
DEFAULT_DIRECTORY = Path("tidelog-pipelines")

Directory = Annotated[
    Path,
    typer.Option(
        "--directory",
        "-d",
        envvar="TIDELOG_PIPELINES",
        metavar="DIR",
        help="Where pipelines keep checkpoints, the lake and tables.",
    ),
]
LakeCatalogUri = Annotated[
    str | None,
    typer.Option(
        "--lake-catalog",
        metavar="URI",
        help="A REST catalog for the lake's tables; a new lake has one of its own in its directory.",
        show_default=False,
    ),
]
LakeProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--lake-property",
        metavar="NAME=VALUE",
        help="A property of the REST catalog or the object store in PyIceberg's name; may be repeated.",
        show_default=False,
    ),
]
LakeWarehouse = Annotated[
    str | None,
    typer.Option(
        "--lake-warehouse",
        metavar="URI",
        help="Where the tables of a new lake are, s3://bucket/path for example.",
        show_default="in its directory",
    ),
]


@dataclass(frozen=True)
class CatalogOptions:
    """Which catalog a lake has, and where its tables are."""

    lake_catalog: LakeCatalogUri = None
    lake_property: LakeProperty = None
    lake_warehouse: LakeWarehouse = None

    @property
    def properties(self) -> dict[str, str]:
        """What the catalog is told."""
        given = dict(parse_assignments(self.lake_property, "--lake-property"))
        for name in given:
            if name.lower().endswith(_SECRETS):
                variable = name.upper().replace(".", "__").replace("-", "_")
                raise WrongUsage(
                    f"--lake-property {name}=… shows it to everybody on this machine: set "
                    f"PYICEBERG_CATALOG__TIDELOG__{variable} in the environment, or write it into "
                    "~/.pyiceberg.yaml"
                )
        return given


DEFAULT_CATALOG = CatalogOptions()
"""Stands for the options in the signature of a command."""
