"""Fetch requests: sessions, reads, the wait for more data, and the fast path of followers."""
