/* Loops over the records of many messages, which block the event loop.

   `openmsmq.queueing.stamping` has the pure Python version, which is used if this module is not compiled. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Py_ssize_t at, length;
    const char *bytes;
} Patch;

#define MOST_PATCHES 8

/* Returns the number of patches, or -1 with an exception set. `longest` becomes the smallest size of a record into
   which all patches fit. */
static int read_patches(PyObject *list, Patch *patches, Py_ssize_t *longest)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count > MOST_PATCHES) {
        PyErr_Format(PyExc_ValueError, "%zd patches, at most %d", count, MOST_PATCHES);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Patch *patch = &patches[i];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "ny#", &patch->at, &patch->bytes, &patch->length))
            return -1;
        if (patch->at < 0 || patch->at > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "no place %zd in a record", patch->at);
            return -1;
        }
        *longest = Py_MAX(*longest, patch->at + patch->length);
    }
    return (int)count;
}

/* Write the same patches into all records, and an increasing number into each; return the heads of the records. */
static PyObject *stamp(PyObject *module, PyObject *arguments)
{
    PyObject *list, *heads = NULL;
    Py_buffer records, bounds;
    Py_ssize_t counter_at, head;
    unsigned int counter;
    Patch patches[MOST_PATCHES];
    if (!PyArg_ParseTuple(arguments, "w*y*O!nIn", &records, &bounds, &PyList_Type, &list, &counter_at, &counter, &head))
        return NULL;
    Py_ssize_t count = bounds.len / 8 - 1, longest = Py_MAX(counter_at + 4, head);
    const int64_t *bound = bounds.buf;
    int patched = read_patches(list, patches, &longest);
    if (patched < 0)
        goto end;
    bool right = count >= 0 && bounds.len % 8 == 0 && counter_at >= 0 && head >= 0 && bound[0] >= 0;
    for (Py_ssize_t i = 0; right && i < count; i++)
        right = bound[i] <= records.len - longest && bound[i + 1] - bound[i] >= longest && bound[i + 1] <= records.len;
    if (!right) {
        PyErr_Format(PyExc_ValueError, "records of at least %zd bytes within the buffer are needed", longest);
        goto end;
    }
    heads = PyBytes_FromStringAndSize(NULL, count * head);
    for (Py_ssize_t i = 0; heads != NULL && i < count; i++, counter++) {
        char *record = (char *)records.buf + bound[i];
        for (int patch = 0; patch < patched; patch++)
            memcpy(record + patches[patch].at, patches[patch].bytes, patches[patch].length);
        for (int byte = 0; byte < 4; byte++)
            record[counter_at + byte] = (char)(counter >> 8 * byte);
        memcpy(PyBytes_AS_STRING(heads) + i * head, record, head);
    }
end:
    PyBuffer_Release(&records);
    PyBuffer_Release(&bounds);
    return heads;
}

/* The parts of a message record (`record.fields`). Their lengths, uint32 each, end its fixed part. */
enum { BODY, EXTENSION, SENDER, CERTIFICATE, KEY, SIGNATURE, LABEL, DESTINATION, ADMINISTRATION, RESPONSE, STATUS,
       PROVIDER, PARTS };

/* Whether bytes are UTF-8 of at most `longest` UTF-16 code units, none of them NUL. */
static bool is_text(const char *text, size_t length, size_t longest)
{
    unsigned char all = 0;
    if (memchr(text, 0, length) != NULL)
        return false;
    for (size_t i = 0; i < length; i++)
        all |= (unsigned char)text[i];
    if (all < 0x80)
        return length <= longest;
    if (length > 3 * longest) /* a code unit takes at most three bytes */
        return false;
    PyObject *decoded = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "strict");
    if (decoded == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_ssize_t count = PyUnicode_GET_LENGTH(decoded), units = count;
    if (PyUnicode_KIND(decoded) == PyUnicode_4BYTE_KIND)
        for (Py_ssize_t i = 0; i < count; i++)
            units += PyUnicode_READ_CHAR(decoded, i) > 0xFFFF;
    Py_DECREF(decoded);
    return (size_t)units <= longest;
}

/* The same result as `queueing.drafts._needs_no_checks`. */
static bool needs_no_checks(const unsigned char *record, size_t size, const Py_buffer *mask, const Py_buffer *template,
                     const Py_buffer *sender, const Py_buffer *destination, uint32_t longest_label)
{
    size_t fixed = mask->len;
    uint64_t differs = 0;
    if (size < fixed)
        return false;
    for (size_t at = 0; at < fixed; at += 8) {
        uint64_t given, wanted, decided;
        memcpy(&given, record + at, 8);
        memcpy(&wanted, (const char *)template->buf + at, 8);
        memcpy(&decided, (const char *)mask->buf + at, 8);
        differs |= (given ^ wanted) & decided;
    }
    if (differs)
        return false;
    uint32_t lengths[PARTS];
    uint64_t total = fixed;
    memcpy(lengths, record + fixed - sizeof lengths, sizeof lengths);
    for (int part = 0; part < PARTS; part++)
        total += lengths[part];
    if (total != size || lengths[ADMINISTRATION] || lengths[RESPONSE] || lengths[SENDER] != sender->len
        || lengths[DESTINATION] != destination->len)
        return false;
    const unsigned char *at = record + fixed + lengths[BODY] + lengths[EXTENSION];
    return memcmp(at, sender->buf, sender->len) == 0 && is_text((const char *)at + sender->len, lengths[LABEL], longest_label)
        && memcmp(record + size - destination->len, destination->buf, destination->len) == 0;
}

/* The indexes of the records that are not plain and need a closer check. */
static PyObject *odd(PyObject *module, PyObject *arguments)
{
    PyObject *found = NULL;
    Py_buffer records, bounds, mask, template, sender, destination;
    unsigned int longest_label;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*y*I", &records, &bounds, &mask, &template, &sender, &destination,
                          &longest_label))
        return NULL;
    Py_ssize_t count = bounds.len / 8 - 1;
    const int64_t *bound = bounds.buf;
    bool right = count >= 0 && bounds.len % 8 == 0 && bound[0] >= 0 && mask.len == template.len && mask.len % 8 == 0
        && mask.len >= (Py_ssize_t)(PARTS * sizeof(uint32_t));
    for (Py_ssize_t i = 0; right && i < count; i++)
        right = bound[i] <= bound[i + 1] && bound[i + 1] <= records.len;
    if (!right)
        PyErr_SetString(PyExc_ValueError, "the bounds are not within the records");
    else
        found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        const unsigned char *record = (const unsigned char *)records.buf + bound[i];
        if (needs_no_checks(record, bound[i + 1] - bound[i], &mask, &template, &sender, &destination, longest_label))
            continue;
        PyObject *place = PyLong_FromSsize_t(i);
        if (place == NULL || PyList_Append(found, place) < 0)
            Py_CLEAR(found);
        Py_XDECREF(place);
    }
    PyBuffer_Release(&records);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&mask);
    PyBuffer_Release(&template);
    PyBuffer_Release(&sender);
    PyBuffer_Release(&destination);
    return found;
}

static PyMethodDef functions[] = {
    {"stamp", stamp, METH_VARARGS, "stamp(records, bounds, patches, counter_at, counter, head): heads of the records"},
    {"odd", odd, METH_VARARGS,
     "odd(records, bounds, mask, template, sender, destination, longest_label): indexes of records to check"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.queueing.packing", "Records of many messages.", -1, functions,
};

PyMODINIT_FUNC PyInit_packing(void)
{
    return PyModule_Create(&definition);
}
