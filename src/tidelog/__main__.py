"""``python -m tidelog`` is the ``tidelog`` command."""

from __future__ import annotations

from tidelog.cli.main import main

main()
