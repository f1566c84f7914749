"""Znodes: where each thing is in the tree, and its JSON."""
