# What record_codec.py cannot say in Python: the C types of its classes, and what column_codec shares.

cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _MAX_COUNT
cdef Py_ssize_t _MAX_SIZE
cdef long long _MAX_TIMESTAMP
cdef double _RATIO_MARGIN

cdef long long wrap(long long value) noexcept
cdef Py_ssize_t put_bytes(
    unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t source_at, Py_ssize_t length
) noexcept
cdef object resize(bytearray buffer, Py_ssize_t size)
cdef (long long, Py_ssize_t) read_varint(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t bits
) noexcept
cdef bytearray encode_headers(object headers)
cdef object bad_headers()
cdef object open_batch(object data, Py_ssize_t pos, bint check_crc, object max_size)


cdef class BatchBuilder:
    cdef readonly Py_ssize_t limit_bytes
    cdef readonly Py_ssize_t record_count
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


cdef class RecordCursor:
    cdef bytes body
    cdef Py_ssize_t size
    cdef Py_ssize_t end
    cdef long long timestamp_delta
    cdef long long offset_delta
    cdef Py_ssize_t key_at
    cdef Py_ssize_t key_length
    cdef Py_ssize_t value_at
    cdef Py_ssize_t value_length
    cdef Py_ssize_t headers_at
    cdef Py_ssize_t advance(self) except -1
    cdef Py_ssize_t finish(self) except -1
    cdef bytes key(self)
    cdef bytes value(self)
    cdef tuple headers(self)


cdef class ConsumerRecord:
    cdef public object topic
    cdef public long long partition
    cdef public long long offset
    cdef public long long timestamp
    cdef public long long timestamp_type
    cdef public object key
    cdef public object value
    cdef public object headers
    cdef public object leader_epoch
