/* Conversion of message records to their compact form and back; `openmsmq.record.compact_record` has the same functions
   in Python, which are used if this module is not compiled. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../store/column.h"
#include "compact_record.h"

enum { WORD = 8, MOST_WORDS = LONGEST_FIXED / WORD };

static Description form; /* set once, by `describe` */
static uint32_t words;   /* words of the fields; the last one may overlap the one before it */
static struct {
    size_t at;       /* the offset of the word */
    uint32_t fields; /* those in it that usually have the value of the template */
} word_of[MOST_WORDS];

static PyObject *describe(PyObject *module, PyObject *description)
{
    (void)module;
    if (!PyBytes_Check(description) || PyBytes_GET_SIZE(description) != sizeof form)
        return PyErr_Format(PyExc_ValueError, "a description has %zu bytes", sizeof form);
    memcpy(&form, PyBytes_AS_STRING(description), sizeof form);
    if (form.lengths < WORD || form.size > LONGEST_FIXED)
        return PyErr_Format(PyExc_ValueError, "a fixed part has %d to %d bytes", WORD, LONGEST_FIXED);
    words = (form.lengths + WORD - 1) / WORD;
    for (uint32_t word = 0; word < words; word++) {
        size_t at = word + 1 < words ? word * WORD : form.lengths - WORD;
        word_of[word].at = at;
        word_of[word].fields = 0;
        for (uint32_t field = 0; field < form.fields; field++) {
            const Slot *slot = &form.slots[field];
            if (slot->at < at + WORD && at < (size_t)slot->at + slot->width)
                word_of[word].fields |= 1u << field & ~form.referring;
        }
    }
    Py_RETURN_NONE;
}

/* Write the compact form of the fixed part. Returns its size, which is at most LONGEST_FIXED. */
static size_t compact_fixed(const unsigned char *fixed, unsigned char *into)
{
    unsigned char *to = into + MASKS;
    uint32_t mask = 0, parts = 0, candidates = form.referring;
    for (uint32_t word = 0; word < words; word++) /* comparing words first is much faster: few fields differ */
        if (memcmp(fixed + word_of[word].at, form.usual + word_of[word].at, WORD))
            candidates |= word_of[word].fields;
    for (; candidates; candidates &= candidates - 1) {
        uint32_t field = (uint32_t)__builtin_ctz(candidates);
        const Slot *slot = &form.slots[field];
        const unsigned char *usual = (form.referring >> field & 1 ? fixed : form.usual) + slot->as;
        if (!are_equal(fixed + slot->at, usual, slot->width)) {
            mask |= 1u << field;
            copy_field(to, fixed + slot->at, slot->width);
            to += slot->width;
        }
    }
    for (uint32_t part = 0; part < form.parts; part++) {
        uint32_t length;
        memcpy(&length, fixed + form.lengths + 4 * part, 4);
        if (!length)
            continue;
        parts |= 1u << part;
        for (; length > 0x7F; length >>= 7)
            *to++ = (unsigned char)(0x80 | (length & 0x7F));
        *to++ = (unsigned char)length;
    }
    into[0] = COMPACT_FORM;
    for (int byte = 0; byte < 4; byte++)
        into[1 + byte] = (unsigned char)(mask >> 8 * byte);
    into[5] = (unsigned char)parts;
    into[6] = (unsigned char)(parts >> 8);
    return (size_t)(to - into);
}

static bool is_plain_form(const unsigned char *record, size_t size)
{
    return size >= form.size && record[0] == PLAIN_FORM;
}

static PyObject *compact(PyObject *module, PyObject *record)
{
    (void)module;
    Py_buffer plain;
    unsigned char fixed[LONGEST_FIXED];
    if (PyObject_GetBuffer(record, &plain, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *made = NULL;
    if (!is_plain_form(plain.buf, (size_t)plain.len))
        PyErr_SetString(PyExc_ValueError, "a message record in its plain form is needed");
    else {
        size_t size = compact_fixed(plain.buf, fixed), rest = (size_t)plain.len - form.size;
        made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size + rest));
        if (made != NULL) {
            memcpy(PyBytes_AS_STRING(made), fixed, size);
            memcpy(PyBytes_AS_STRING(made) + size, (const char *)plain.buf + form.size, rest);
        }
    }
    PyBuffer_Release(&plain);
    return made;
}

static PyObject *expand(PyObject *module, PyObject *record)
{
    (void)module;
    if (!PyBytes_Check(record))
        return PyErr_Format(PyExc_TypeError, "a record is bytes");
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(record);
    size_t size = (size_t)PyBytes_GET_SIZE(record);
    unsigned char fixed[LONGEST_FIXED];
    if (!size || data[0] != COMPACT_FORM)
        return Py_NewRef(record);
    size_t from = expand_fixed(&form, data, size, fixed);
    if (!from)
        return PyErr_Format(PyExc_ValueError, "compact message record of %zu bytes is not valid", size);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(form.size + size - from));
    if (made != NULL) {
        memcpy(PyBytes_AS_STRING(made), fixed, form.size);
        memcpy(PyBytes_AS_STRING(made) + form.size, data + from, size - from);
    }
    return made;
}

static PyObject *expand_head(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer head;
    Py_ssize_t length;
    unsigned char fixed[LONGEST_FIXED];
    if (!PyArg_ParseTuple(arguments, "y*n", &head, &length))
        return NULL;
    PyObject *made = NULL;
    const unsigned char *data = head.buf;
    bool is_compact = head.len && data[0] == COMPACT_FORM;
    if (length < 0 || length > (Py_ssize_t)form.size || (!is_compact && head.len < length))
        PyErr_SetString(PyExc_ValueError, "the head is too short");
    else if (!is_compact)
        made = PyBytes_FromStringAndSize((const char *)data, length);
    else if (!expand_fields(&form, data, (size_t)head.len, (size_t)length, fixed))
        PyErr_SetString(PyExc_ValueError, "compact message record is not valid");
    else
        made = PyBytes_FromStringAndSize((const char *)fixed, length);
    PyBuffer_Release(&head);
    return made;
}

/* (records, sizes, bounds) in compact form. */
static PyObject *compact_rows(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer records, bounds;
    PyObject *made = NULL, *sizes = NULL, *places = NULL, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*", &records, &bounds))
        return NULL;
    Py_ssize_t count = bounds.len / 8 - 1;
    const int64_t *bound = bounds.buf;
    bool right = count >= 0 && bounds.len % 8 == 0 && bound[0] >= 0;
    for (Py_ssize_t i = 0; right && i < count; i++)
        right = bound[i] <= bound[i + 1] && bound[i + 1] <= records.len
            && is_plain_form((const unsigned char *)records.buf + bound[i], (size_t)(bound[i + 1] - bound[i]));
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "message records in their plain form, within the buffer, are needed");
        goto end;
    }
    made = PyBytes_FromStringAndSize(NULL, bound[count] - bound[0] + count * (LONGEST_FIXED - (Py_ssize_t)form.size));
    uint32_t *size;
    int64_t *place;
    if (made == NULL || !(sizes = new_column(one_u32, count, &size)) || !(places = new_column(one_i64, count + 1, &place)))
        goto end;
    unsigned char *start = (unsigned char *)PyBytes_AS_STRING(made), *to = start;
    for (Py_ssize_t i = 0; i < count; i++) {
        const unsigned char *record = (const unsigned char *)records.buf + bound[i];
        size_t rest = (size_t)(bound[i + 1] - bound[i]) - form.size;
        unsigned char *begin = to;
        place[i] = to - start;
        to += compact_fixed(record, to);
        memcpy(to, record + form.size, rest);
        to += rest;
        size[i] = (uint32_t)(to - begin);
    }
    place[count] = to - start;
    if (_PyBytes_Resize(&made, to - start) == 0)
        result = PyTuple_Pack(3, made, sizes, places);
end:
    Py_XDECREF(made);
    Py_XDECREF(sizes);
    Py_XDECREF(places);
    PyBuffer_Release(&records);
    PyBuffer_Release(&bounds);
    return result;
}

/* (fixed parts in plain form, starts of the parts after them); the fixed part of a record that is not valid is zero. */
static PyObject *split_rows(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer buffer, starts, sizes;
    PyObject *made = NULL, *places = NULL, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*", &buffer, &starts, &sizes))
        return NULL;
    Py_ssize_t count = starts.len / 8;
    const int64_t *start = starts.buf, *size = sizes.buf;
    bool right = starts.len % 8 == 0 && sizes.len == starts.len;
    for (Py_ssize_t i = 0; right && i < count; i++)
        right = start[i] >= 0 && size[i] >= 0 && size[i] <= buffer.len && start[i] <= buffer.len - size[i];
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "the records are not within the buffer");
        goto end;
    }
    int64_t *place;
    made = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)form.size);
    if (made == NULL || !(places = new_column(one_i64, count, &place)))
        goto end;
    unsigned char *fixed = (unsigned char *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < count; i++, fixed += form.size) {
        const unsigned char *record = (const unsigned char *)buffer.buf + start[i];
        size_t from = expand_fixed(&form, record, (size_t)size[i], fixed);
        if (!from && is_plain_form(record, (size_t)size[i])) {
            from = form.size;
            memcpy(fixed, record, from);
        }
        if (!from)
            memset(fixed, 0, form.size);
        place[i] = start[i] + (int64_t)from;
    }
    result = PyTuple_Pack(2, made, places);
end:
    Py_XDECREF(made);
    Py_XDECREF(places);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&sizes);
    return result;
}

static PyMethodDef functions[] = {
    {"describe", describe, METH_O, "describe(description): set the fields of a record; once, before anything else"},
    {"compact", compact, METH_O, "compact(record): its compact form"},
    {"expand", expand, METH_O, "expand(record): its plain form"},
    {"expand_head", expand_head, METH_VARARGS, "expand_head(head, length): first bytes of the plain form"},
    {"compact_rows", compact_rows, METH_VARARGS, "compact_rows(records, bounds): records, sizes and bounds"},
    {"split_rows", split_rows, METH_VARARGS, "split_rows(buffer, starts, sizes): fixed parts, starts of the other parts"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.record.compacting", "Compact message records.", -1, functions,
};

PyMODINIT_FUNC PyInit_compacting(void)
{
    return prepare_columns() < 0 ? NULL : PyModule_Create(&definition);
}
