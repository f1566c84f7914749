# What request_times.py cannot say in Python: buffers, the clock, the C types of its class.

from cpython.buffer cimport Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    bint PyMemoryView_Check(object view)

cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil


cdef class RequestTimes:
    cdef readonly object cells
    cdef readonly object versions
    cdef long long* _cells
    cdef long long* _versions
    cdef double _now(self) noexcept
    cdef long long _us(self, double seconds) noexcept
    cdef object _count(self, long long key, long long version)
    cdef object _add(self, long long row, long long value)
