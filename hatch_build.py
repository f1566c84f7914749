"""Compiles the record codec when Tidelog is built, where that is possible; where it is not, goes on without.

The modules run interpreted as well, only slower, so nothing here may fail an installation: no Cython, no C
compiler or no Python headers mean one line of note. A wheel gets the compiled modules and with them a
platform tag; an editable install gets them beside their sources, where imports look first.
``TIDELOG_NO_EXTENSIONS=1`` leaves them out.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# All or none: a compiled module reaches into the others by their C names.
MODULES = (
    "tidelog.records.record_reader",
    "tidelog.records.record_writer",
    "tidelog.records.record_walker",
    "tidelog.records.column_reader",
    "tidelog.records.column_writer",
    "tidelog.client.producer.quick_send",
    "tidelog.coordinator.group.offsets.committed_offset",
    "tidelog.coordinator.group.offsets.commit_fold",
    "tidelog.coordinator.loading.log_walker",
    "tidelog.coordinator.loading.record_fold",
    "tidelog.metrics.request_times",
    "tidelog.storage.segment.batch_search",
)


class ExtensionBuildHook(BuildHookInterface[Any]):
    """Adds the compiled codec to wheels; sdists carry the source alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        package_root = Path(self.root, "src")
        if version == "editable":
            # What an earlier install left would hide the source, also where it compiled other modules.
            for directory in {source_of(module, package_root).parent for module in MODULES}:
                for stale in directory.glob("*.so"):
                    stale.unlink()
        if os.environ.get("TIDELOG_NO_EXTENSIONS", "0") not in ("", "0"):
            return
        work = Path(tempfile.mkdtemp(prefix="tidelog-build-"))
        try:
            compiled = compile_modules(package_root, work)
        except Exception as error:
            # Compilers fail in many ways, none of which is a reason to refuse the installation.
            reason = f"{type(error).__name__}: {str(error)[:80]}"
            print(
                f"tidelog: the record codec is not compiled and runs interpreted ({reason})", file=sys.stderr
            )
            shutil.rmtree(work, ignore_errors=True)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for module, file in compiled.items():
            beside = source_of(module, package_root).with_name(file.name)
            if version == "editable":
                shutil.move(file, beside)
            else:
                build_data["force_include"][str(file)] = beside.relative_to(package_root).as_posix()
        self._work = work

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_work"):
            shutil.rmtree(self._work, ignore_errors=True)


def source_of(module: str, package_root: Path) -> Path:
    """The file that a module is written in."""
    return package_root.joinpath(*module.split(".")).with_suffix(".py")


def compile_modules(package_root: Path, work: Path) -> dict[str, Path]:
    """Each compiled module's file, somewhere under ``work``."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    options = [] if os.name == "nt" else ["-O3", "-fwrapv", "-fno-strict-aliasing", "-g0"]
    extensions = [
        Extension(module, [str(source_of(module, package_root))], extra_compile_args=options)
        for module in MODULES
    ]
    modules = cythonize(
        extensions,
        build_dir=str(work / "c"),
        include_path=[str(package_root)],
        quiet=True,
        force=True,
        language_level=3,
    )
    command = build_ext(Distribution({"name": "tidelog", "ext_modules": modules}))
    command.parallel = os.cpu_count()
    command.build_lib = str(work / "lib")
    command.build_temp = str(work / "objects")
    command.ensure_finalized()
    command.run()
    return {module: Path(command.get_ext_fullpath(module)) for module in MODULES}
