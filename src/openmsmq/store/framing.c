/* Frames of many messages, one after another in one buffer.

   `openmsmq.store.row_frames` has the pure Python version, which is used if this module is not compiled. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* the stable ABI: one file for Python 3.11 and later */
#include <Python.h>
#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include "column.h"
#include "crc32c.h"

#if defined(IS_ACCELERATED) && __BYTE_ORDER == __LITTLE_ENDIAN
#define IS_BUILT

typedef struct __attribute__((packed)) { /* store.frames.HEADER */
    uint32_t crc, length;
    uint64_t position, key, extra;
    uint32_t queue, transaction, group;
    uint8_t kind, flags;
    uint16_t tag;
} Header;

static Py_ssize_t frame_size(int64_t length) { return (Py_ssize_t)(sizeof(Header) + length + 7) & ~(Py_ssize_t)7; }

/* The number of messages that fit into `room`; sets the bytes that they take there. -1 for invalid bounds. */
static Py_ssize_t fitting(const int64_t *bounds, Py_ssize_t count, Py_ssize_t length, Py_ssize_t room, Py_ssize_t *total)
{
    Py_ssize_t some = 0;
    *total = 0;
    for (; some < count; some++) {
        if (bounds[some] < 0 || bounds[some + 1] < bounds[some] || bounds[some + 1] > length)
            return -1;
        Py_ssize_t size = frame_size(bounds[some + 1] - bounds[some]);
        if (size > room - *total)
            break;
        *total += size;
    }
    return some;
}

static void write_frames(unsigned char *into, uint64_t *locations, const unsigned char *data, const int64_t *bounds,
                         const uint64_t *keys, const uint64_t *extras, const uint32_t *queues, Py_ssize_t count, Header common,
                         uint8_t ending, uint64_t origin, uint32_t seed)
{
    CrcRecord records[SIDE_BY_SIDE];
    uint32_t results[SIDE_BY_SIDE];
    unsigned char *frames[SIDE_BY_SIDE];
    int some = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t length = bounds[i + 1] - bounds[i], size = frame_size(length), used = sizeof(Header) + length;
        Header header = common;
        if (i + 1 == count)
            header.flags = ending;
        header.length = (uint32_t)length;
        header.key = keys[i];
        header.extra = extras[i];
        header.queue = queues[i];
        header.group = (uint32_t)(common.position - origin);
        memcpy(into, &header, sizeof header);
        memcpy(into + sizeof header, data + bounds[i], length);
        memset(into + used, 0, size - used);
        locations[i] = common.position;
        frames[some] = into;
        records[some++] = crc_of(into + sizeof header.crc, used - sizeof header.crc, seed);
        if (some == SIDE_BY_SIDE || i + 1 == count) {
            crc_results(records, some, results);
            while (some--)
                memcpy(frames[some], &results[some], 4);
            some = 0;
        }
        into += size;
        common.position += size;
    }
}

/* Parse unsigned integers: PyArg_ParseTuple takes longer than encoding a frame. Returns whether all are valid. */
static bool read_numbers(PyObject *const *from, int count, uint64_t *into)
{
    for (int i = 0; i < count; i++) {
        into[i] = PyLong_AsUnsignedLongLong(from[i]);
        if (into[i] == UINT64_MAX && PyErr_Occurred())
            return false;
    }
    return true;
}

static PyObject *header(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    enum { KIND, FLAGS, POSITION, GROUP, KEY, EXTRA, QUEUE, TRANSACTION, TAG, SEED, NUMBERS };
    uint64_t given[NUMBERS];
    Py_buffer payload;
    if (count != NUMBERS + 1)
        return PyErr_Format(PyExc_TypeError, "header() takes %d arguments", NUMBERS + 1);
    if (!read_numbers(arguments + 1, NUMBERS, given) || PyObject_GetBuffer(arguments[0], &payload, PyBUF_SIMPLE) < 0)
        return NULL;
    Header made = {.length = (uint32_t)payload.len, .position = given[POSITION], .key = given[KEY],
                   .extra = given[EXTRA], .queue = (uint32_t)given[QUEUE], .transaction = (uint32_t)given[TRANSACTION],
                   .group = (uint32_t)given[GROUP], .kind = (uint8_t)given[KIND], .flags = (uint8_t)given[FLAGS],
                   .tag = (uint16_t)given[TAG]};
    CrcRecord record = crc_of((unsigned char *)&made + sizeof made.crc, sizeof made - sizeof made.crc, (uint32_t)given[SEED]);
    made.crc = crc_rest(&record);
    if (payload.len) {
        record = crc_of(payload.buf, (size_t)payload.len, made.crc);
        made.crc = crc_rest(&record);
    }
    PyBuffer_Release(&payload);
    return PyBytes_FromStringAndSize((char *)&made, sizeof made);
}

static PyObject *frames(PyObject *module, PyObject *const *arguments, Py_ssize_t given_count)
{
    (void)module;
    enum { DATA, BOUNDS, KEYS, EXTRAS, QUEUES, BUFFERS };
    enum { FIRST, KIND, FLAGS, ENDING, TRANSACTION, TAG, SEED, POSITION, ORIGIN, ROOM, NUMBERS };
    Py_buffer buffers[BUFFERS];
    uint64_t given[NUMBERS];
    Py_ssize_t total;
    int held = 0;
    if (given_count != BUFFERS + NUMBERS)
        return PyErr_Format(PyExc_TypeError, "frames() takes %d arguments", BUFFERS + NUMBERS);
    if (!read_numbers(arguments + BUFFERS, NUMBERS, given))
        return NULL;
    while (held < BUFFERS && !PyObject_GetBuffer(arguments[held], &buffers[held], PyBUF_SIMPLE))
        held++;
    PyObject *made = NULL, *locations = NULL, *result = NULL;
    uint64_t *places;
    if (held < BUFFERS)
        goto end;
    const Py_buffer *data = &buffers[DATA], *bounds = &buffers[BOUNDS], *keys = &buffers[KEYS];
    const Py_buffer *extras = &buffers[EXTRAS], *queues = &buffers[QUEUES];
    Py_ssize_t count = keys->len / 8, first = (Py_ssize_t)given[FIRST], some = -1;
    if (first >= 0 && first <= count && keys->len == 8 * count && extras->len == keys->len && bounds->len == keys->len + 8
        && queues->len == 4 * count && given[ROOM] <= PY_SSIZE_T_MAX)
        some = fitting((const int64_t *)bounds->buf + first, count - first, data->len, (Py_ssize_t)given[ROOM], &total);
    if (some < 0)
        PyErr_SetString(PyExc_ValueError, "the columns differ in length, or the bounds are not within the data");
    else if ((made = PyBytes_FromStringAndSize(NULL, total)) && (locations = new_column(one_u64, some, &places))) {
        Header common = {.position = given[POSITION], .transaction = (uint32_t)given[TRANSACTION],
                         .kind = (uint8_t)given[KIND], .flags = (uint8_t)given[FLAGS], .tag = (uint16_t)given[TAG]};
        write_frames((unsigned char *)PyBytes_AsString(made), places, data->buf,
                     (const int64_t *)bounds->buf + first, (const uint64_t *)keys->buf + first,
                     (const uint64_t *)extras->buf + first, (const uint32_t *)queues->buf + first, some, common,
                     (uint8_t)(first + some < count ? given[FLAGS] : given[ENDING]), given[ORIGIN], (uint32_t)given[SEED]);
        result = PyTuple_Pack(2, made, locations);
    }
end:
    Py_XDECREF(made);
    Py_XDECREF(locations);
    while (held--)
        PyBuffer_Release(&buffers[held]);
    return result;
}

/* ------------------------------------------------------------------------------------------------------- reading */

/* Read the header of a complete frame of a message for absolute `position` at `at`. Returns whether there is one; does
   not check its checksum. */
static bool read_header(Header *header, const unsigned char *data, Py_ssize_t size, Py_ssize_t at, uint64_t position,
                        uint32_t kinds, unsigned int tag)
{
    if (size - at < (Py_ssize_t)sizeof *header)
        return false;
    memcpy(header, data + at, sizeof *header);
    return header->position == position && header->tag == tag && header->kind <= 31 && kinds >> header->kind & 1
        && header->length <= size - at - (Py_ssize_t)sizeof *header;
}

/* Append to `found` the payloads of up to SIDE_BY_SIDE frames at `locations` from index `first` on. Returns their
   number, which is smaller only before the first invalid frame, or -1 with an exception set. */
static int append_payloads(PyObject *found, const Py_buffer *data, PyObject *locations, Py_ssize_t first, uint64_t base,
                           uint32_t kinds, unsigned int tag, uint32_t seed)
{
    CrcRecord records[SIDE_BY_SIDE];
    Header headers[SIDE_BY_SIDE];
    uint32_t results[SIDE_BY_SIDE];
    const unsigned char *frames[SIDE_BY_SIDE];
    Py_ssize_t count = PySequence_Size(locations);
    int some = 0, valid = 0;
    if (count < 0)
        return -1;
    for (; some < SIDE_BY_SIDE && first + some < count; some++) {
        PyObject *item = PySequence_GetItem(locations, first + some);
        unsigned long long location = item == NULL ? 0 : PyLong_AsUnsignedLongLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (location < base || location - base >= (unsigned long long)data->len
            || !read_header(&headers[some], data->buf, data->len, (Py_ssize_t)(location - base), location, kinds, tag))
            break;
        frames[some] = (unsigned char *)data->buf + (location - base);
        records[some] = crc_of(frames[some] + sizeof headers->crc, sizeof *headers - sizeof headers->crc + headers[some].length,
                               seed);
    }
    crc_results(records, some, results);
    for (; valid < some && results[valid] == headers[valid].crc; valid++) {
        PyObject *payload = PyBytes_FromStringAndSize((const char *)frames[valid] + sizeof *headers, headers[valid].length);
        if (payload == NULL || PyList_Append(found, payload) < 0) {
            Py_XDECREF(payload);
            return -1;
        }
        Py_DECREF(payload);
    }
    return valid;
}

static PyObject *payloads(PyObject *module, PyObject *const *arguments, Py_ssize_t given_count)
{
    (void)module;
    enum { BASE, FIRST, KINDS, TAG, SEED, NUMBERS };
    uint64_t given[NUMBERS];
    Py_buffer data;
    if (given_count != NUMBERS + 2)
        return PyErr_Format(PyExc_TypeError, "payloads() takes %d arguments", NUMBERS + 2);
    if (!read_numbers(arguments + 2, NUMBERS, given) || PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = PyList_New(0);
    Py_ssize_t first = (Py_ssize_t)given[FIRST];
    int some = SIDE_BY_SIDE;
    for (; found != NULL && some == SIDE_BY_SIDE; first += some)
        some = append_payloads(found, &data, arguments[1], first, given[BASE], (uint32_t)given[KINDS],
                               (unsigned int)given[TAG], (uint32_t)given[SEED]);
    if (some < 0)
        Py_CLEAR(found);
    PyBuffer_Release(&data);
    return found;
}

/* ------------------------------------------------------------------------------------------------------ replaying */

typedef struct {
    Header header;
    uint64_t order;
} Insert;

typedef struct {
    Insert *all;
    size_t count, room;
    uint64_t volume, highest;
    Py_ssize_t last; /* offset of the last frame */
} Inserts;

/* Record up to SIDE_BY_SIDE frames from `at` on, while each is a complete insert that forms a group alone. `at` is
   beyond the data if the padding of the last frame was cut off. Returns their number; -1: no memory. */
static int note_inserts(Inserts *inserts, const unsigned char *data, Py_ssize_t size, Py_ssize_t *at, uint64_t base,
                        unsigned int kind, unsigned int flags, unsigned int tag, uint32_t seed)
{
    CrcRecord records[SIDE_BY_SIDE];
    Header headers[SIDE_BY_SIDE];
    uint32_t results[SIDE_BY_SIDE];
    Py_ssize_t next = *at;
    int some = 0, valid = 0;
    for (; some < SIDE_BY_SIDE && size - next >= (Py_ssize_t)sizeof(Header); some++) {
        Header *header = &headers[some];
        memcpy(header, data + next, sizeof *header);
        if (header->position != base + (uint64_t)next || header->tag != tag || header->kind != kind
            || header->flags != flags || header->length > size - next - (Py_ssize_t)sizeof *header)
            break;
        records[some] = crc_of(data + next + sizeof header->crc, sizeof *header - sizeof header->crc + header->length, seed);
        next += frame_size(header->length);
    }
    if (inserts->count + SIDE_BY_SIDE > inserts->room) {
        size_t room = 2 * inserts->room + 1024;
        Insert *all = realloc(inserts->all, room * sizeof *all);
        if (all == NULL)
            return -1;
        inserts->all = all;
        inserts->room = room;
    }
    crc_results(records, some, results);
    for (; valid < some && results[valid] == headers[valid].crc; valid++) {
        const Header *header = &headers[valid];
        inserts->all[inserts->count] = (Insert){*header, inserts->count};
        inserts->count++;
        inserts->volume += header->length;
        if (header->key > inserts->highest)
            inserts->highest = header->key;
        inserts->last = *at;
        *at += frame_size(header->length);
    }
    return valid;
}

static int by_queue(const void *left, const void *right)
{
    const Insert *a = left, *b = right;
    if (a->header.queue != b->header.queue)
        return a->header.queue < b->header.queue ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* A list of the queues with their headers, each in the order of the log. */
static PyObject *grouped(Inserts *inserts)
{
    PyObject *groups = PyList_New(0);
    bool mixed = false;
    for (size_t i = 1; i < inserts->count && !mixed; i++)
        mixed = inserts->all[i].header.queue != inserts->all[0].header.queue;
    if (mixed)
        qsort(inserts->all, inserts->count, sizeof(Insert), by_queue);
    for (size_t start = 0, end; groups != NULL && start < inserts->count; start = end) {
        uint32_t queue = inserts->all[start].header.queue;
        for (end = start; end < inserts->count && inserts->all[end].header.queue == queue; end++)
            ;
        PyObject *headers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((end - start) * sizeof(Header)));
        for (size_t i = start; headers != NULL && i < end; i++)
            memcpy(PyBytes_AsString(headers) + (i - start) * sizeof(Header), &inserts->all[i].header, sizeof(Header));
        PyObject *pair = headers == NULL ? NULL : Py_BuildValue("IN", queue, headers);
        if (pair == NULL || PyList_Append(groups, pair) < 0)
            Py_CLEAR(groups);
        Py_XDECREF(pair);
    }
    return groups;
}

static PyObject *inserts(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t at;
    unsigned long long base;
    unsigned int kind, flags, tag, seed;
    if (!PyArg_ParseTuple(arguments, "y*nKIIII", &data, &at, &base, &kind, &flags, &tag, &seed))
        return NULL;
    Inserts found = {NULL, 0, 0, 0, 0, at};
    PyObject *groups = NULL;
    int some = SIDE_BY_SIDE;
    if (at < 0)
        PyErr_SetString(PyExc_ValueError, "the offset is negative");
    else {
        while (some == SIDE_BY_SIDE)
            some = note_inserts(&found, data.buf, data.len, &at, base, kind, flags, tag, seed);
        groups = some < 0 ? PyErr_NoMemory() : grouped(&found);
    }
    PyBuffer_Release(&data);
    free(found.all);
    return groups == NULL ? NULL : Py_BuildValue("NnnnKK", groups, (Py_ssize_t)found.count, found.last, at,
                                                 (unsigned long long)found.volume, (unsigned long long)found.highest);
}

static PyMethodDef functions[] = {
    {"inserts", inserts, METH_VARARGS,
     "inserts(data, offset, base, kind, flags, tag, seed): headers of the frames from there on that are valid and of this "
     "kind, by queue, how many, where the last one begins and ends, bytes of the messages, highest key"},
    {"payloads", (PyCFunction)(void (*)(void))payloads, METH_FASTCALL,
     "payloads(data, locations, base, first, kinds, tag, seed): of the frames there, up to the first one that is not"},
    {"header", (PyCFunction)(void (*)(void))header, METH_FASTCALL,
     "header(payload, kind, flags, position, group, key, extra, queue, transaction, tag, seed): of a frame"},
    {"frames", (PyCFunction)(void (*)(void))frames, METH_FASTCALL,
     "frames(data, bounds, keys, extras, queues, first, kind, flags, ending, transaction, tag, seed, position, origin, "
     "room): those that fit, and their locations"},
    {NULL},
};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.store.framing", "Frames of many messages.", -1,
#ifdef IS_BUILT
    functions,
#endif
};

PyMODINIT_FUNC PyInit_framing(void)
{
#ifdef IS_BUILT
    if (IS_ACCELERATED)
        return prepare_columns() < 0 ? NULL : PyModule_Create(&definition);
#endif
    return PyErr_Format(PyExc_ImportError, "%s needs an instruction that this processor does not have", definition.m_name);
}
