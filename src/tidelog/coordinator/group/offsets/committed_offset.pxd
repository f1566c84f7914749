# What committed_offset.py cannot say in Python: the C types of its attributes.

cdef class CommittedOffset:
    cdef readonly long long offset
    cdef readonly long long committed_at_ms
    cdef readonly long long expires_at_ms
    cdef readonly long long record_offset
    cdef readonly object metadata
    cdef readonly object topic_id
    cdef readonly int leader_epoch
