# What commit_fold.py cannot say in Python: the C types of its class.

from tidelog.coordinator.group.offsets.committed_offset cimport CommittedOffset
from tidelog.coordinator.loading.record_fold cimport RecordFold

cdef Py_ssize_t _MAX_PROBES
cdef unsigned long long _HASH_PRIME
cdef Py_ssize_t _NUMBERS
cdef Py_ssize_t _KEY_TYPE
cdef Py_ssize_t _PARTITION_SIZE
cdef Py_ssize_t _WIDTH
cdef Py_ssize_t _KEY_AT
cdef Py_ssize_t _KEY_LENGTH
cdef Py_ssize_t _FLAGS
cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _LEADER_EPOCH
cdef Py_ssize_t _COMMITTED_AT
cdef Py_ssize_t _RECORD_OFFSET
cdef Py_ssize_t _METADATA_AT
cdef Py_ssize_t _METADATA_LENGTH
cdef Py_ssize_t _METADATA_ROOM
cdef Py_ssize_t _ID_AT
cdef Py_ssize_t _HASH
cdef Py_ssize_t _NO_ID
cdef Py_ssize_t _ID_SIZE
cdef long long _COMMITTED
cdef long long _FORGOTTEN
cdef long long _PRESENT

cdef bint _is_ascii(const unsigned char* source, Py_ssize_t at, Py_ssize_t length) noexcept nogil
cdef bint _is_usual_key(const unsigned char* source, Py_ssize_t at, Py_ssize_t length) noexcept nogil


cdef class CommitFold(RecordFold):
    cdef unsigned long long _seed
    cdef dict _names
    cdef dict _topic_ids
    cdef list _numbers
    cdef dict _slots_by_key
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count
    cdef Py_ssize_t _drained
    cdef Py_ssize_t _run_start
    cdef Py_ssize_t _heap_used
    cdef object _entry_memory
    cdef object _heap_memory
    cdef object _slot_memory
    cdef long long[::1] _entry_view
    cdef unsigned char[::1] _heap_view
    cdef int[::1] _slot_view
    cdef long long* entries
    cdef unsigned char* heap
    cdef int* slots
    cdef Py_ssize_t heap_size
    cdef unsigned long long slot_mask
    cdef object _resize(self, Py_ssize_t capacity)
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
    cdef Py_ssize_t _find(
        self, const unsigned char* source, Py_ssize_t key_at, Py_ssize_t key_length
    ) noexcept nogil
    cdef Py_ssize_t _add(
        self, const unsigned char* source, Py_ssize_t key_at, Py_ssize_t key_length, unsigned long long code
    ) noexcept nogil
    cdef Py_ssize_t _keep(self, const unsigned char* source, Py_ssize_t at, Py_ssize_t length) noexcept nogil
    cdef Py_ssize_t _copy(
        self, Py_ssize_t place, const unsigned char* source, Py_ssize_t at, Py_ssize_t length
    ) noexcept nogil
    cdef bytes _bytes(self, Py_ssize_t at, Py_ssize_t end)
    cdef CommittedOffset _made(self, Py_ssize_t base)
    cdef object _read_names(self, bytes prefix)
    cdef object _reset(self)
