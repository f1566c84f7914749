"""Python classes that a user names in an option, as ``module:Class``: reporters, authorizers, readers.

The module is imported like any other: it is installed beside Tidelog, or on ``PYTHONPATH``. Code of the
user that fails or exits at start is a ``ConfigError``: a broker does not end without a reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, cast

from tidelog.errors import ConfigError

T = TypeVar("T")


def is_custom_class(name: str) -> bool:
    """Whether an option's value is a Python class; the names of Java's classes have no colon."""
    return ":" in name


def make_custom(option: str, name: str, base: Callable[..., T]) -> T:
    """An instance of the class ``name``, which must be a subclass of ``base``; raises ``ConfigError``."""
    assert isinstance(base, type)
    module_name, _, class_name = name.strip().partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{option}: the module {module_name!r} of {name} cannot be imported "
            f"({type(error).__name__}: {error}); install it in Tidelog's environment or add it to PYTHONPATH"
        ) from error
    found = getattr(module, class_name, None)
    required = f"{base.__module__}.{base.__qualname__}"
    if found is None:
        raise ConfigError(
            f"{option}: the module {module_name!r} has no class {class_name!r}; write MODULE:CLASS"
        )
    if not isinstance(found, type) or not issubclass(found, base):
        raise ConfigError(f"{option}: {name} is not a subclass of {required}; derive it from that class")
    if missing := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
        raise ConfigError(f"{option}: {name} does not define {missing}; add what {required} requires")
    try:
        return cast("T", found())
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{option}: {name} cannot be created without arguments ({type(error).__name__}: {error})"
        ) from error


class Configurable(Protocol):
    """A custom class that receives the options."""

    def configure(self, options: Mapping[str, str], /) -> None:
        """Use ``options``."""


def configure_custom(option: str, name: str, custom: Configurable, options: Mapping[str, str]) -> None:
    """Give ``custom`` its options; raises ``ConfigError`` if it refuses them."""
    try:
        custom.configure(options)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{option}: {name} refuses its configuration ({type(error).__name__}: {error})"
        ) from error
