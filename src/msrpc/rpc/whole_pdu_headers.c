/* The headers of requests and responses of one fragment without a verifier.

   `msrpc.rpc.whole_pdus` is the Python version, used if this module is not compiled. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* the stable ABI: one file for Python 3.11 and later */
#include <Python.h>
#include "whole_pdu_headers.h"

#ifdef WHOLE_PDU_HEADERS
#define IS_BUILT

static PyObject *request(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    char *data;
    Py_ssize_t size, at, most;
    Header header;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "request(data, at, most)");
    if (PyBytes_AsStringAndSize(arguments[0], &data, &size) < 0)
        return NULL;
    at = PyLong_AsSsize_t(arguments[1]);
    most = PyLong_AsSsize_t(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    size_t stub = at < 0 || at > size ? 0 : stub_of_whole_request(data + at, size - at, most, &header);
    if (stub == 0)
        Py_RETURN_NONE;
    const char *start = data + at;
    PyObject *found = PyTuple_New(5);
    PyObject *items[] = {
        PyLong_FromUnsignedLong(header.call_id), PyLong_FromLong(header.context_id), PyLong_FromLong(header.opnum),
        stub == sizeof header ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(start + sizeof header, OBJECT_SIZE),
        PyBytes_FromStringAndSize(start + stub, header.length - (Py_ssize_t)stub),
    };
    for (int i = 0; i < 5; i++)
        if (found == NULL || items[i] == NULL) {
            Py_CLEAR(found);
            Py_XDECREF(items[i]);
        } else
            PyTuple_SetItem(found, i, items[i]);
    return found;
}

static PyObject *response(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    char *stub;
    Py_ssize_t size;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "response(call_id, context_id, stub)");
    unsigned long call_id = PyLong_AsUnsignedLong(arguments[0]), context_id = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(arguments[2], &stub, &size) < 0)
        return NULL;
    if (size > UINT16_MAX - (Py_ssize_t)sizeof(Header) || call_id > UINT32_MAX || context_id > UINT16_MAX)
        return PyErr_Format(PyExc_ValueError, "no response of one fragment");
    Header header = response_header((uint32_t)call_id, (uint16_t)context_id, (size_t)size);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizeof header + size);
    if (made != NULL) {
        char *into = PyBytes_AsString(made);
        memcpy(into, &header, sizeof header);
        memcpy(into + sizeof header, stub, (size_t)size);
    }
    return made;
}

static PyMethodDef functions[] = {
    {"request", (PyCFunction)(void (*)(void))request, METH_FASTCALL,
     "request(data, at, most): call id, context id, opnum, object UUID and stub of the one that begins there, or None"},
    {"response", (PyCFunction)(void (*)(void))response, METH_FASTCALL, "response(call_id, context_id, stub): the PDU"},
    {NULL},
};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "msrpc.rpc.whole_pdu_headers", "Headers of whole requests and responses.", -1,
#ifdef IS_BUILT
    functions,
#endif
};

PyMODINIT_FUNC PyInit_whole_pdu_headers(void)
{
#ifdef IS_BUILT
    return PyModule_Create(&definition);
#else
    return PyErr_Format(PyExc_ImportError, "%s requires a little-endian processor", definition.m_name);
#endif
}
