# What log_walker.py cannot say in Python: the C types of its class, and what needs no GIL.

from tidelog.coordinator.loading.record_fold cimport RecordFold

cdef unsigned int[2048] _CRC

cdef Py_ssize_t _MAX_EVENTS
cdef Py_ssize_t _MAX_KEPT_BYTES
cdef Py_ssize_t _MAX_TYPES
cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _ATTRIBUTES_AT
cdef long long _CODEC_MASK
cdef long long _CONTROL_BIT
cdef long long _TRANSACTIONAL_BIT
cdef long long _MAGIC
cdef long long _MASK_32
cdef unsigned int _POLYNOMIAL
cdef Py_ssize_t _WIDTH
cdef Py_ssize_t _KIND
cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _PRODUCER_ID
cdef Py_ssize_t _EPOCH
cdef Py_ssize_t _BODY
cdef Py_ssize_t _KEY_AT
cdef Py_ssize_t _KEY_LENGTH
cdef Py_ssize_t _VALUE_AT
cdef Py_ssize_t _VALUE_LENGTH
cdef Py_ssize_t _C_RECORD
cdef Py_ssize_t _C_MARKER
cdef Py_ssize_t _C_FOLDED
cdef Py_ssize_t _C_SKIPPED
cdef Py_ssize_t _DONE
cdef Py_ssize_t _APPLY
cdef Py_ssize_t _FOLD_FULL
cdef Py_ssize_t _INFLATE
cdef Py_ssize_t _OPENED
cdef Py_ssize_t _WITHOUT_KEY
cdef Py_ssize_t _SHORT_KEY
cdef Py_ssize_t _UNKNOWN_TYPE
cdef Py_ssize_t _UNKNOWN_FORMAT
cdef Py_ssize_t _BAD_CRC
cdef Py_ssize_t _BAD_COUNT
cdef Py_ssize_t _TOO_MANY
cdef Py_ssize_t _MALFORMED

cdef object _fill_crc_tables()
cdef long long _crc(const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
cdef (long long, Py_ssize_t) _varint(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most
) noexcept nogil


cdef class LogWalker:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly long long max_records
    cdef readonly bint fold_is_full
    cdef readonly long long next_offset
    cdef RecordFold _fold
    cdef bytearray _known_types
    cdef unsigned char[::1] _type_view
    cdef object _passed
    cdef long long[::1] _passed_view
    cdef object _event_memory
    cdef long long[::1] _event_view
    cdef long long* _events
    cdef Py_ssize_t _count
    cdef Py_ssize_t _taken
    cdef list _bodies
    cdef list _reasons
    cdef bytes _chunk
    cdef const unsigned char[::1] _chunk_view
    cdef const unsigned char* chunk
    cdef Py_ssize_t _chunk_size
    cdef Py_ssize_t _pos
    cdef Py_ssize_t _header_at
    cdef bytes _body
    cdef bint _is_packed
    cdef const unsigned char[::1] _body_view
    cdef const unsigned char* _source
    cdef Py_ssize_t _body_number
    cdef Py_ssize_t _kept_bytes
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    cdef long long _left
    cdef long long _base_offset
    cdef long long _delta
    cdef long long _producer_id
    cdef long long _epoch
    cdef bint _transactional
    cdef bint _control
    cdef Py_ssize_t _key_at
    cdef Py_ssize_t _key_length
    cdef Py_ssize_t _value_at
    cdef Py_ssize_t _value_length
    cdef Py_ssize_t _walk(self, RecordFold fold) noexcept nogil
    cdef Py_ssize_t _next_batch(self) noexcept nogil
    cdef Py_ssize_t _skip(self, long long last, Py_ssize_t reason) noexcept nogil
    cdef object _inflate(self)
    cdef bytes _unpacked(self, object batch)
    cdef Py_ssize_t _check_records(self, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    cdef bint _advance(self) noexcept nogil
    cdef Py_ssize_t _walk_records(self, RecordFold fold) noexcept nogil
    cdef Py_ssize_t _add_event(self, RecordFold fold, Py_ssize_t kind, long long offset) noexcept nogil
    cdef bint _is_known(self, long long kind) noexcept nogil
    cdef Py_ssize_t _pass_over(self, Py_ssize_t reason, long long offset) noexcept nogil
