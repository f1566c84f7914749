# What column_codec.py cannot say in Python: the C types of its classes' attributes and methods.

cdef Py_ssize_t _MAX_BYTES
cdef unsigned long long _MASK_31
cdef unsigned long long _MASK_32
cdef unsigned long long _MURMUR
cdef unsigned long long _MURMUR_SEED


cdef class BinaryColumn:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t null_count
    cdef bytearray _data
    cdef bytearray _offsets
    cdef bytearray _validity
    cdef unsigned char* _data_at
    cdef unsigned char* _offsets_at
    cdef unsigned char* _validity_at
    cdef Py_ssize_t _used
    cdef object reserve(self, Py_ssize_t rows, Py_ssize_t size)
    cdef Py_ssize_t put(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t length) noexcept
    cdef Py_ssize_t _marked_rows
    cdef Py_ssize_t _marked_nulls
    cdef Py_ssize_t _marked_used
    cdef Py_ssize_t mark(self) noexcept
    cdef object rewind(self)


cdef class RecordColumns:
    cdef readonly Py_ssize_t rows
    cdef readonly bint with_headers
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values
    cdef readonly BinaryColumn header_keys
    cdef readonly BinaryColumn header_values
    cdef bytearray _offsets
    cdef bytearray _timestamps
    cdef bytearray _timestamp_types
    cdef bytearray _header_ends
    cdef object _reserve(self, Py_ssize_t rows, Py_ssize_t size)
    cdef object _append(self, tuple header, bytes body, long long start)


cdef class BinaryView:
    cdef readonly Py_ssize_t rows
    cdef const unsigned char[::1] _data
    cdef const int[::1] _offsets
    cdef const unsigned char[::1] _validity
    cdef bint _nullable
    cdef Py_ssize_t _first
    cdef Py_ssize_t length_at(self, Py_ssize_t row) except -2
    cdef Py_ssize_t start_at(self, Py_ssize_t row) noexcept
    cdef const unsigned char* pointer(self) noexcept


cdef class ColumnSource:
    cdef readonly Py_ssize_t rows
    cdef readonly BinaryView keys
    cdef readonly BinaryView values
    cdef long long _timestamp
    cdef bint _timed
    cdef const long long[::1] _timestamps
    cdef list _headers
    cdef long long timestamp_at(self, Py_ssize_t row) noexcept
