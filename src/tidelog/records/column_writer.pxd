# What column_writer.py cannot say in Python: the C types of its classes' attributes and methods.

cdef unsigned long long _MASK_31
cdef unsigned long long _MASK_32
cdef unsigned long long _MURMUR
cdef unsigned long long _MURMUR_SEED

cpdef unsigned long long murmur2(bytes data) noexcept


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
