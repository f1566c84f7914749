"""The ``tidelog`` command: one file per command, on top of ``client``; ``start`` alone runs a broker."""
