/* A binary heap of deadlines in an array. `openmsmq.queueing.deadlines` has the pure Python version, which is used if
   this module is not compiled. An entry takes 24 bytes; a tuple of integers takes 150. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "captured.h"

typedef struct {
    uint64_t number, key, deadline; /* as they are captured */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    size_t count, room, looked_at;
} Heap;

/* How many entries `tidy` examines, and the size up to which it leaves a heap alone. */
static const size_t LOOKS = 3, FEW = 4096, LEAST = 16;

static bool is_before(const Entry *one, const Entry *other)
{
    if (one->deadline != other->deadline)
        return one->deadline < other->deadline;
    return one->key != other->key ? one->key < other->key : one->number < other->number;
}

static bool make_room(Heap *self, size_t room)
{
    Entry *entries = room > SIZE_MAX / sizeof(Entry) ? NULL : PyMem_RawRealloc(self->entries, room * sizeof(Entry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return false;
    }
    self->entries = entries;
    self->room = room;
    return true;
}

static void sift_up(Heap *self, size_t at)
{
    Entry moved = self->entries[at];
    for (size_t parent; at && is_before(&moved, &self->entries[parent = (at - 1) / 2]); at = parent)
        self->entries[at] = self->entries[parent];
    self->entries[at] = moved;
}

static void sift_down(Heap *self, size_t at)
{
    Entry moved = self->entries[at];
    for (size_t child; (child = 2 * at + 1) < self->count; at = child) {
        if (child + 1 < self->count && is_before(&self->entries[child + 1], &self->entries[child]))
            child++;
        if (!is_before(&self->entries[child], &moved))
            break;
        self->entries[at] = self->entries[child];
    }
    self->entries[at] = moved;
}

static void remove_at(Heap *self, size_t at)
{
    Entry last = self->entries[--self->count];
    if (at < self->count) {
        self->entries[at] = last;
        sift_down(self, at);
        sift_up(self, at);
    }
    if (self->room > LEAST && self->count < self->room / 4 && !make_room(self, self->room / 2))
        PyErr_Clear(); /* if shrinking fails, the array keeps its size */
}

static PyObject *add(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Heap *self = (Heap *)object;
    Entry added;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "add(deadline, key, number)");
    added.deadline = PyLong_AsUnsignedLongLong(arguments[0]);
    added.key = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(arguments[1]);
    added.number = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    if (self->count == self->room && !make_room(self, self->room + self->room / 2 + LEAST))
        return NULL;
    bool is_first = !self->count || added.deadline < self->entries[0].deadline;
    self->entries[self->count++] = added;
    sift_up(self, self->count - 1);
    return PyBool_FromLong(is_first);
}

static PyObject *first(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    const Heap *self = (Heap *)object;
    if (!self->count)
        Py_RETURN_NONE;
    const Entry *entry = self->entries;
    return Py_BuildValue("KKK", (unsigned long long)entry->deadline, (unsigned long long)entry->key,
                         (unsigned long long)entry->number);
}

static PyObject *drop_first(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    Heap *self = (Heap *)object;
    if (!self->count)
        return PyErr_Format(PyExc_IndexError, "there is no deadline");
    remove_at(self, 0);
    Py_RETURN_NONE;
}

static PyObject *tidy(PyObject *object, PyObject *is_pending)
{
    Heap *self = (Heap *)object;
    for (size_t looks = 0; looks < LOOKS && self->count > FEW; looks++) {
        size_t at = self->looked_at = self->looked_at >= self->count ? 0 : self->looked_at;
        Entry entry = self->entries[at];
        PyObject *answer = PyObject_CallFunction(is_pending, "KK", (unsigned long long)entry.key,
                                                 (unsigned long long)entry.number);
        int is_kept = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (is_kept < 0)
            return NULL;
        if (is_kept)
            self->looked_at++;
        else if (at < self->count && memcmp(&self->entries[at], &entry, sizeof entry) == 0) /* left in place */
            remove_at(self, at);
    }
    Py_RETURN_NONE;
}

static PyObject *capture(PyObject *object, PyObject *room)
{
    const Heap *self = (Heap *)object;
    Entry *copy;
    PyObject *captured = new_capture(room, (Py_ssize_t)(self->count * sizeof(Entry)), &copy);
    if (captured != NULL && self->count)
        memcpy(copy, self->entries, self->count * sizeof(Entry));
    return captured;
}

static int by_queue(const void *one, const void *other)
{
    const Entry *a = one, *b = other;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->deadline < b->deadline ? -1 : a->deadline > b->deadline;
}

/* Runs in any thread, and releases the interpreter lock for nearly all of the time. */
static PyObject *ordered(PyObject *nothing, PyObject *captured)
{
    (void)nothing;
    Py_buffer content;
    if (PyObject_GetBuffer(captured, &content, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t size = content.len / (Py_ssize_t)sizeof(Entry) * (Py_ssize_t)sizeof(Entry);
    PyObject *sorted = PyBytes_FromStringAndSize(NULL, size);
    if (sorted != NULL && size) {
        char *entries = PyBytes_AS_STRING(sorted);
        Py_BEGIN_ALLOW_THREADS
        memcpy(entries, content.buf, (size_t)size);
        qsort(entries, (size_t)size / sizeof(Entry), sizeof(Entry), by_queue);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&content);
    return sorted;
}

/* The index of the first entry whose queue number is `number` or higher. */
static Py_ssize_t start_of(const Entry *entries, Py_ssize_t count, uint64_t number)
{
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (entries[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static PyObject *of_queue(PyObject *nothing, PyObject *arguments)
{
    (void)nothing;
    PyObject *sorted;
    unsigned long long number;
    if (!PyArg_ParseTuple(arguments, "SK", &sorted, &number))
        return NULL;
    const Entry *entries = (const Entry *)PyBytes_AS_STRING(sorted);
    Py_ssize_t count = PyBytes_GET_SIZE(sorted) / (Py_ssize_t)sizeof(Entry);
    Py_ssize_t start = start_of(entries, count, number), size = (Py_ssize_t)sizeof(Entry);
    Py_ssize_t end = number == UINT64_MAX ? count : start_of(entries, count, number + 1);
    PyObject *all = PyMemoryView_FromObject(sorted);
    PyObject *part = all == NULL ? NULL : PySequence_GetSlice(all, start * size, end * size);
    Py_XDECREF(all);
    return part;
}

static Py_ssize_t length(PyObject *object)
{
    return (Py_ssize_t)((Heap *)object)->count;
}

static void dealloc(PyObject *object)
{
    PyMem_RawFree(((Heap *)object)->entries);
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))add, METH_FASTCALL, "add(deadline, key, number): whether it is the first one"},
    {"first", first, METH_NOARGS, "first(): the earliest one as (deadline, key, number), or None"},
    {"drop_first", drop_first, METH_NOARGS, "drop_first(): forget it; raises IndexError"},
    {"tidy", tidy, METH_O, "tidy(is_pending): examine some entries, and remove those that are not pending"},
    {"capture", capture, METH_O, "capture(room): a copy of all entries"},
    {"ordered", ordered, METH_O | METH_STATIC, "ordered(captured): by number of queue and key"},
    {"of_queue", of_queue, METH_VARARGS | METH_STATIC, "of_queue(ordered, number): the part of one queue"},
    {NULL},
};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_methods, methods}, {Py_mp_length, length}, {0}};

static PyType_Spec specification = {
    "openmsmq.queueing.deadline_heap.Heap", sizeof(Heap), 0, Py_TPFLAGS_DEFAULT, slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.queueing.deadline_heap", "Deadlines of messages.", -1, NULL,
};

PyMODINIT_FUNC PyInit_deadline_heap(void)
{
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&specification);
    if (module == NULL || type == NULL || PyModule_AddObjectRef(module, "Heap", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
