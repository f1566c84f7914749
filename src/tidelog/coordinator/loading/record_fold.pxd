# What record_fold.py cannot say in Python: the C types of its class, and what log_walker shares.

cdef Py_ssize_t REFUSED
cdef Py_ssize_t TAKEN
cdef Py_ssize_t FULL


cdef class RecordFold:
    cdef Py_ssize_t cut(self) noexcept nogil
    cdef bint has_run(self) noexcept nogil
    cdef Py_ssize_t put(
        self,
        const unsigned char* source,
        Py_ssize_t key_at,
        Py_ssize_t key_length,
        Py_ssize_t value_at,
        Py_ssize_t value_length,
        long long record_offset,
    ) noexcept nogil
