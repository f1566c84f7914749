"""The tables of options: names, types, defaults and bounds."""
