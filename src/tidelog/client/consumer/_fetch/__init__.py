"""Fetches: one in flight per broker, answers decoded when ``poll`` takes them.

fetcher             sends what is due: fetch_request builds it, fetch_session: what the broker knows
fetch_answers       takes answers apart; completed_fetch is one partition of one answer, decoded lazily
fetch_buffer        what has been fetched and not handed out; fetch_collector hands it out
fetch_config        the options of fetching
"""
