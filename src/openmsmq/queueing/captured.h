/* Memory for the copies that a checkpoint is written from. */

#ifndef OPENMSMQ_CAPTURED_H
#define OPENMSMQ_CAPTURED_H

#include <Python.h>

/* Reserve `size` bytes for a capture: a part of `room`, a bytearray whose memory pages are present, or new bytes if
   `room` is None or too small. `at` receives their address. NULL with an exception set on failure. */
static PyObject *new_capture(PyObject *room, Py_ssize_t size, void *at)
{
    if (room != Py_None && !PyByteArray_Check(room))
        return PyErr_Format(PyExc_TypeError, "room is a bytearray or None, not %.80s", Py_TYPE(room)->tp_name);
    if (room == Py_None || PyByteArray_GET_SIZE(room) < size) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
        *(void **)at = bytes == NULL ? NULL : PyBytes_AS_STRING(bytes);
        return bytes;
    }
    PyObject *all = PyMemoryView_FromObject(room), *part = all == NULL ? NULL : PySequence_GetSlice(all, 0, size);
    Py_XDECREF(all);
    *(void **)at = PyByteArray_AS_STRING(room);
    return part;
}

#endif
