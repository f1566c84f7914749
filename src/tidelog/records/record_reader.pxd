# What record_reader.py cannot say in Python: the C types of its classes, and what column_reader shares.

cdef Py_ssize_t _HEADER_SIZE

cdef long long wrap(long long value) noexcept
cdef (long long, Py_ssize_t) read_varint(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t bits
) noexcept
cdef object bad_headers()
cdef object open_batch(object data, Py_ssize_t pos, bint check_crc, object max_size)
cdef tuple _decode_headers(const unsigned char* source, Py_ssize_t at, Py_ssize_t end)


cdef class RecordCursor:
    cdef const unsigned char[::1] _body
    cdef const unsigned char* source
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


cdef class BatchReader:
    cdef readonly long long left
    cdef object _topic
    cdef long long _partition
    cdef long long _start
    cdef long long _base_offset
    cdef long long _base_timestamp
    cdef bint _append_time
    cdef object _leader_epoch
    cdef RecordCursor _cursor
    cdef object _end(self)


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
