# The C types of quick_send's classes.

cimport cython


@cython.freelist(64)
cdef class RecordFuture:
    cdef readonly object batch
    cdef readonly Py_ssize_t index
    cdef readonly long long timestamp_ms
    cdef readonly Py_ssize_t key_size
    cdef readonly Py_ssize_t value_size


cdef class PartitionQueue:
    cdef readonly object topic
    cdef readonly object topic_partition
    cdef readonly object batches
    cdef public object open
    cdef public object append
    cdef public bint muted


cdef class TopicQueues:
    cdef readonly str name
    cdef readonly dict queues
    cdef readonly object partitioner
    cdef public object available
    cdef public object leaders
    cdef public PartitionQueue sticky
    cdef public double compression_ratio
    cdef readonly Py_ssize_t partition_count


cdef class QuickSend:
    cdef object _lock
    cdef dict _topics
    cdef object _slow_path
    cdef bint _serializes
