/* An io_uring(7) that does only fdatasync; `openmsmq.store.uring_sync` uses it.

   The required part of linux/io_uring.h is declared here: the systems on which wheels are built (manylinux) may not
   have that header, and this interface of the kernel does not change. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* the stable ABI: one file for Python 3.11 and later */
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_io_uring_setup /* headers before Linux 5.1; the numbers of x86-64 and aarch64 */
#define __NR_io_uring_setup 425
#define __NR_io_uring_enter 426
#endif

enum {
    SETUP_COOP_TASKRUN = 1 << 8, /* Linux 5.19 */
    FEAT_SINGLE_MMAP = 1,        /* Linux 5.4 */
    ENTER_GETEVENTS = 1,
    OP_FSYNC = 3,
    FSYNC_DATASYNC = 1,
};
enum { OFF_RINGS = 0, OFF_ENTRIES = 0x10000000 };

typedef struct { /* struct io_sqring_offsets: bytes from the start of the mapping */
    uint32_t head, tail, ring_mask, ring_entries, others[2], array, reserved[3];
} SubmissionOffsets;

typedef struct { /* struct io_cqring_offsets */
    uint32_t head, tail, ring_mask, ring_entries, overflow, completions, reserved[4];
} CompletionOffsets;

typedef struct { /* struct io_uring_params */
    uint32_t submission_entries, completion_entries, flags, polling[2], features, reserved[4];
    SubmissionOffsets submission;
    CompletionOffsets completion;
} Parameters;

typedef struct { /* struct io_uring_sqe */
    uint8_t opcode, flags;
    uint16_t priority;
    int32_t descriptor;
    uint64_t offset, address;
    uint32_t length, fsync_flags;
    uint64_t others[4];
} Entry;

typedef struct { /* struct io_uring_cqe */
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
} Completion;

_Static_assert(sizeof(Parameters) == 120 && sizeof(Entry) == 64 && sizeof(Completion) == 16, "as the kernel has them");

typedef struct {
    PyObject_HEAD
    int descriptor; /* -1: closed */
    char *rings;    /* both rings, in one mapping; NULL: not mapped */
    size_t rings_size;
    Entry *entries; /* NULL: not mapped */
    uint32_t entry_count, completion_mask;
    uint32_t *submission_tail, *completion_head; /* this process writes them */
    uint32_t *completion_tail;                   /* the kernel writes it */
    Completion *completions;
    uint32_t under_way; /* entries that the kernel accepted and whose completions were not read */
} Ring;

/* -- making and closing ------------------------------------------------------------------------------------------ */

static void release(Ring *self)
{
    if (self->entries != NULL)
        munmap(self->entries, self->entry_count * sizeof(Entry));
    if (self->rings != NULL)
        munmap(self->rings, self->rings_size);
    if (self->descriptor >= 0)
        close(self->descriptor);
    self->entries = NULL, self->rings = NULL, self->descriptor = -1;
}

static void *map(int descriptor, size_t size, off_t offset)
{
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, offset);
    return mapped == MAP_FAILED ? PyErr_SetFromErrno(PyExc_OSError) : mapped; /* which returns NULL */
}

/* Returns 0, or -1 with an exception set; `release` frees what was created before the error. */
static int set_up(Ring *self, uint32_t entries, uint32_t flags)
{
    Parameters made = {.flags = flags};
    self->descriptor = (int)syscall(__NR_io_uring_setup, entries, &made); /* the kernel sets close-on-exec */
    if (self->descriptor < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (!(made.features & FEAT_SINGLE_MMAP)) {
        PyErr_SetString(PyExc_OSError, "this kernel's io_uring is older than Linux 5.4");
        return -1;
    }
    size_t submissions = made.submission.array + made.submission_entries * sizeof(uint32_t);
    size_t completions = made.completion.completions + made.completion_entries * sizeof(Completion);
    self->rings_size = submissions > completions ? submissions : completions;
    self->rings = map(self->descriptor, self->rings_size, OFF_RINGS);
    if (self->rings == NULL)
        return -1;
    self->entry_count = made.submission_entries;
    self->entries = map(self->descriptor, self->entry_count * sizeof(Entry), OFF_ENTRIES);
    if (self->entries == NULL)
        return -1;
    self->completion_mask = made.completion_entries - 1;
    self->submission_tail = (uint32_t *)(self->rings + made.submission.tail);
    self->completion_head = (uint32_t *)(self->rings + made.completion.head);
    self->completion_tail = (uint32_t *)(self->rings + made.completion.tail);
    self->completions = (Completion *)(self->rings + made.completion.completions);
    uint32_t *array = (uint32_t *)(self->rings + made.submission.array);
    for (uint32_t i = 0; i < self->entry_count; i++) /* entries are used in order */
        array[i] = i;
    return 0;
}

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *count;
    int coop_taskrun;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "Ring(entries, coop_taskrun) takes no keywords");
    if (!PyArg_ParseTuple(arguments, "O!p:Ring", &PyLong_Type, &count, &coop_taskrun))
        return NULL;
    unsigned long entries = PyLong_AsUnsignedLong(count);
    if (PyErr_Occurred())
        return NULL;
    if (entries == 0 || entries > INT16_MAX + 1) /* the limit of io_uring_setup */
        return PyErr_Format(PyExc_ValueError, "a ring has from 1 to %d entries", INT16_MAX + 1);
    Ring *self = (Ring *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->descriptor = -1;
    if (set_up(self, (uint32_t)entries, coop_taskrun ? SETUP_COOP_TASKRUN : 0) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    release((Ring *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *close_ring(PyObject *object, PyObject *unused)
{
    (void)unused;
    release((Ring *)object);
    Py_RETURN_NONE;
}

/* -- using it ---------------------------------------------------------------------------------------------------- */

/* NULL with an exception set if the ring is closed. */
static Ring *open_ring(PyObject *object)
{
    Ring *self = (Ring *)object;
    if (self->descriptor >= 0)
        return self;
    PyErr_SetString(PyExc_ValueError, "the ring is closed");
    return NULL;
}

static PyObject *descriptor(PyObject *object, void *unused)
{
    (void)unused;
    Ring *self = open_ring(object);
    return self == NULL ? NULL : PyLong_FromLong(self->descriptor);
}

static PyObject *submit(PyObject *object, PyObject *handles)
{
    Ring *self = open_ring(object);
    if (self == NULL)
        return NULL;
    if (!PyList_Check(handles))
        return PyErr_Format(PyExc_TypeError, "submit takes a list of descriptors");
    Py_ssize_t count = PyList_Size(handles);
    if (count > self->entry_count - self->under_way)
        return PyErr_Format(PyExc_ValueError, "%zd files, with %u under way, for a ring of %u", count, self->under_way,
                            self->entry_count);
    uint32_t tail = *self->submission_tail;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(handles, i);
        /* Only integers: `__index__` of anything else could run code that closes the ring meanwhile. */
        if (!PyLong_Check(item))
            return PyErr_Format(PyExc_TypeError, "a descriptor is an integer");
        long handle = PyLong_AsLong(item);
        if (PyErr_Occurred())
            return NULL;
        if (handle < 0 || handle > INT_MAX)
            return PyErr_Format(PyExc_ValueError, "%ld is not a file descriptor", handle);
        self->entries[(tail + (uint32_t)i) & (self->entry_count - 1)] =
            (Entry){.opcode = OP_FSYNC, .descriptor = (int32_t)handle, .fsync_flags = FSYNC_DATASYNC};
    }
    __atomic_store_n(self->submission_tail, tail + (uint32_t)count, __ATOMIC_RELEASE);
    /* The interpreter lock is held: the kernel passes each sync to a worker and returns at once, but another Python
       thread could hold a released lock for up to 5 ms. */
    long taken;
    do
        taken = syscall(__NR_io_uring_enter, self->descriptor, (uint32_t)count, 0, 0, NULL, 0);
    while (taken < 0 && errno == EINTR);
    /* The kernel reads the tail only during the call, so entries that it did not accept can be withdrawn. */
    __atomic_store_n(self->submission_tail, tail + (uint32_t)(taken < 0 ? 0 : taken), __ATOMIC_RELEASE);
    if (taken < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    self->under_way += (uint32_t)taken;
    return PyLong_FromLong(taken);
}

static PyObject *completed(PyObject *object, PyObject *unused)
{
    (void)unused;
    Ring *self = open_ring(object);
    if (self == NULL)
        return NULL;
    int error = 0;
    uint32_t head = *self->completion_head, tail = __atomic_load_n(self->completion_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++, self->under_way--) {
        int32_t result = self->completions[head & self->completion_mask].result;
        if (result < 0)
            error = -result;
    }
    __atomic_store_n(self->completion_head, head, __ATOMIC_RELEASE);
    return Py_BuildValue("Ii", self->under_way, error);
}

static PyObject *wait_for_all(PyObject *object, PyObject *unused)
{
    (void)unused;
    Ring *self;
    while ((self = open_ring(object)) != NULL) { /* a handler of signals, or another thread, may have closed it */
        long result;
        Py_BEGIN_ALLOW_THREADS
        result = syscall(__NR_io_uring_enter, self->descriptor, 0, self->under_way, ENTER_GETEVENTS, NULL, 0);
        Py_END_ALLOW_THREADS
        if (result >= 0)
            Py_RETURN_NONE;
        if (errno != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
    return NULL;
}

static PyMethodDef methods[] = {
    {"submit", submit, METH_O,
     "submit(handles): start a sync of each of these files. Returns how many of them, from the first one on, "
     "the kernel accepted.\n\n"
     "Raises OSError if the kernel accepted none, ValueError if the ring is too small or a descriptor is invalid."},
    {"completed", completed, METH_NOARGS,
     "completed(): the number of files whose sync is not finished, and the errno of a failed one among those that "
     "ended since the last call, or 0."},
    {"wait", wait_for_all, METH_NOARGS,
     "wait(): return when all syncs are finished; `completed` has the results.\n\n"
     "Raises OSError, and the exceptions of signal handlers."},
    {"close", close_ring, METH_NOARGS,
     "close(): release descriptor and memory; no effect if closed. Does not wait. Other methods raise ValueError "
     "afterwards."},
    {NULL},
};

static PyGetSetDef attributes[] = {
    {"descriptor", descriptor, NULL, "The file descriptor, readable when there are completions to read.", NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Ring(entries, coop_taskrun): capacity for `entries` files, rounded up to a power of two.\n\n"
     "With coop_taskrun (Linux 5.19) completions wait until this thread calls the kernel and do not interrupt it.\n\n"
     "Raises OSError if the kernel has no io_uring, forbids it, or is older than Linux 5.4; EINVAL: it does not "
     "know coop_taskrun."},
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0},
};

static PyType_Spec specification = {
    "openmsmq.store.ring.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.store.ring", "Syncs through io_uring.", -1, NULL,
};

PyMODINIT_FUNC PyInit_ring(void)
{
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&specification);
    if (module == NULL || type == NULL || PyModule_AddObjectRef(module, "Ring", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
