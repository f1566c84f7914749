"""The group coordinator: members, assignments and offsets, kept in ``__consumer_offsets``."""
