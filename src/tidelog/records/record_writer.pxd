# What record_writer.py cannot say in Python: the C types of its classes, and what the columns share.

cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _MAX_COUNT
cdef Py_ssize_t _MAX_SIZE
cdef long long _MAX_TIMESTAMP
cdef double _RATIO_MARGIN

cdef Py_ssize_t put_bytes(
    unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t source_at, Py_ssize_t length
) noexcept
cdef object resize(bytearray buffer, Py_ssize_t size)
cdef bytearray encode_headers(object headers)


cdef class BatchBuilder:
    cdef readonly Py_ssize_t limit_bytes
    cdef readonly Py_ssize_t record_count
    cdef readonly Py_ssize_t largest_record_bytes
    cdef readonly object codec
    cdef readonly object level
    cdef readonly double compression_ratio
    cdef readonly bint closed
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef bytearray _buffer
    cdef Py_ssize_t _end
    cdef Py_ssize_t _size_closed
    cdef Py_ssize_t put_record(
        self,
        long long timestamp,
        const unsigned char* key,
        Py_ssize_t key_at,
        Py_ssize_t key_length,
        const unsigned char* value,
        Py_ssize_t value_at,
        Py_ssize_t value_length,
        const unsigned char* headers,
        Py_ssize_t headers_length,
    ) except -2
    cdef Py_ssize_t _estimate(self) noexcept
    cdef Py_ssize_t _make_room(self, Py_ssize_t size) except -1
