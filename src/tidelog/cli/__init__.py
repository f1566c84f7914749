"""The ``tidelog`` command, one file per sub-command."""
