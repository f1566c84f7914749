# big_endian.py in C, for modules that are compiled: inlined where it is used.

cdef inline long long int16(const unsigned char* source, Py_ssize_t at) noexcept nogil:
    cdef long long value = source[at] << 8 | source[at + 1]
    return value - 0x10000 if value >= 0x8000 else value


cdef inline long long int32(const unsigned char* source, Py_ssize_t at) noexcept nogil:
    return int16(source, at) * 0x10000 + (source[at + 2] << 8 | source[at + 3])


cdef inline long long int64(const unsigned char* source, Py_ssize_t at) noexcept nogil:
    return int32(source, at) * 0x10000 * 0x10000 + (int32(source, at + 4) & 0xFFFFFFFFLL)
