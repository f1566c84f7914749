# What column_reader.py cannot say in Python: the C types of its classes' attributes and methods.

cdef Py_ssize_t _MAX_BYTES

cdef Py_ssize_t put_int32(unsigned char* target, Py_ssize_t index, long long value) noexcept
cdef Py_ssize_t put_int64(unsigned char* target, Py_ssize_t index, long long value) noexcept
cdef Py_ssize_t move_bytes(
    unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t source_at, Py_ssize_t length
) noexcept


cdef class BinaryColumn:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t null_count
    cdef object _data
    cdef Py_ssize_t _capacity
    cdef unsigned char[::1] _place
    cdef bytearray _offsets
    cdef bytearray _validity
    cdef unsigned char* _data_at
    cdef unsigned char* _offsets_at
    cdef unsigned char* _validity_at
    cdef Py_ssize_t _used
    cdef object settle(self, object memory)
    cdef object reserve(self, Py_ssize_t rows, Py_ssize_t size)
    cdef object _grow(self, Py_ssize_t size)
    cdef Py_ssize_t room(self) noexcept
    cdef Py_ssize_t put(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t length) noexcept
    cdef Py_ssize_t _marked_rows
    cdef Py_ssize_t _marked_nulls
    cdef Py_ssize_t _marked_used
    cdef Py_ssize_t mark(self) noexcept
    cdef object rewind(self)


cdef class RecordColumns:
    cdef readonly Py_ssize_t rows
    cdef readonly bint with_headers
    cdef readonly bint with_keys
    cdef readonly bint with_values
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values
    cdef readonly BinaryColumn header_keys
    cdef readonly BinaryColumn header_values
    cdef object _memory
    cdef bytearray _offsets
    cdef bytearray _timestamps
    cdef bytearray _timestamp_types
    cdef bytearray _header_ends
    cdef object _reserve(self, Py_ssize_t rows, Py_ssize_t size)
    cdef object _append(self, tuple header, object body, long long start)
