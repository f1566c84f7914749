# What batch_search.py cannot say in Python: buffers, the C library's pread, the C types of its constants.

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "unistd.h" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, long long offset)

cdef Py_ssize_t _CHUNK
cdef Py_ssize_t _HEAD
cdef Py_ssize_t _OLD_HEAD
cdef long long _OVERHEAD
cdef long long _MIN_LENGTH
cdef long long _OLD_MIN_LENGTH
cdef unsigned char _MAGIC
cdef unsigned char _CODEC_MASK
