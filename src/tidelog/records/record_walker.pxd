# What record_walker.py cannot say in Python: the C types of its class.

cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _KEY
cdef Py_ssize_t _TIMESTAMP
cdef long long _MAX_TOLD
cdef Py_ssize_t _KEEP_LOCK_BYTES
cdef Py_ssize_t _NOWHERE

cdef (long long, Py_ssize_t) _number(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t bits
) noexcept nogil


cdef (long long, Py_ssize_t) _long_number(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t bits
) noexcept nogil
cdef long long _sum(long long one, long long other) noexcept nogil
cdef Py_ssize_t _renumber(
    const unsigned char* source, Py_ssize_t end, unsigned char* target, long long count, long long shift
) noexcept nogil
cdef long long _highest(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp
) noexcept nogil
cdef long long _highest_of(
    object batch, Py_ssize_t start, long long count, long long base_timestamp
) except? -3


cdef class RecordWalker:
    cdef readonly long long index
    cdef readonly long long max_timestamp
    cdef readonly long long max_timestamp_delta
    cdef readonly long long first_timestamp_delta
    cdef readonly bint is_consecutive
    cdef readonly long long bad_count
    cdef readonly list bad_records
    cdef readonly long long found_timestamp
    cdef readonly long long found_delta
    cdef readonly bint found
    cdef long long _count
    cdef long long _base_timestamp
    cdef long long _append_time
    cdef bint _has_append_time
    cdef long long _earliest
    cdef long long _latest
    cdef bint _keys_required
    cdef bint _consecutive
    cdef long long _last_delta
    cdef bint _searching
    cdef long long _sought_timestamp
    cdef long long _sought_delta
    cdef Py_ssize_t _problem
    cdef Py_ssize_t _state
    cdef long long _skip
    cdef long long _left
    cdef unsigned long long _raw
    cdef Py_ssize_t _shift
    cdef long long _headers
    cdef long long _timestamp_delta
    cdef long long _offset_delta
    cdef long long _key_length
    cdef long long _value_length
    cdef Py_ssize_t _whole(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    cdef Py_ssize_t _piecemeal(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    cdef bint _take_number(self, long long number) noexcept nogil
    cdef bint _next_header(self) noexcept nogil
    cdef Py_ssize_t _judge(self) noexcept nogil
    cdef Py_ssize_t _walk(self, object data, Py_ssize_t at, Py_ssize_t end) except? -3
    cdef Py_ssize_t _run(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
