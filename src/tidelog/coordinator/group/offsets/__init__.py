"""Committed offsets: commits, also transactional ones, fetches, deletion and expiry."""
