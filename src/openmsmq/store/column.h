/* Columns of numbers: array.array, created without its constructor, which parses arguments and raises an audit event
 * each time: for a column of one number that takes longer than the rest. Works with the stable ABI, too. */

#ifndef OPENMSMQ_COLUMN_H
#define OPENMSMQ_COLUMN_H

#include <Python.h>

static PyObject *one_u32, *one_i64, *one_u64; /* array('I', [0]) and so on; for as long as the process lives */

/* Call this when the module is loaded. Returns 0, or -1 with an error. */
static int prepare_columns(void)
{
    PyObject *module = PyImport_ImportModule("array");
    if (module != NULL) {
        one_u32 = PyObject_CallMethod(module, "array", "s[i]", "I", 0);
        one_i64 = PyObject_CallMethod(module, "array", "s[i]", "q", 0);
        one_u64 = PyObject_CallMethod(module, "array", "s[i]", "Q", 0);
        Py_DECREF(module);
    }
    return one_u32 == NULL || one_i64 == NULL || one_u64 == NULL ? -1 : 0;
}

/* A column of `count` zeros with the type of `one`. Sets the address of its numbers, which is valid until other code
 * receives the column. NULL with an exception set on failure. */
static PyObject *new_column(PyObject *one, Py_ssize_t count, void *numbers)
{
    Py_buffer content;
    PyObject *column = PySequence_Repeat(one, count);
    if (column == NULL || PyObject_GetBuffer(column, &content, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(column);
        return NULL;
    }
    *(void **)numbers = content.buf;
    PyBuffer_Release(&content);
    return column;
}

#endif
