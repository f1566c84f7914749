"""Segments of a log: the files of each, their indexes, and reading batches out of them."""
