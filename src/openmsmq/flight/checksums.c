/* CRC-32C of many records at once.

   `openmsmq.flight.segment_reader` does the same with one call for each where this is not compiled. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* the stable ABI: one file for Python 3.11 and later */
#include <Python.h>
#include <stdbool.h>
#include "../store/crc32c.h"

#ifdef IS_ACCELERATED
static void checksums_of(const unsigned char *data, const int64_t *starts, const int64_t *sizes, Py_ssize_t count,
                         uint32_t seed, uint32_t *results)
{
    for (Py_ssize_t first = 0; first < count; first += SIDE_BY_SIDE) {
        int some = (int)Py_MIN(SIDE_BY_SIDE, count - first);
        CrcRecord records[SIDE_BY_SIDE];
        for (int i = 0; i < some; i++)
            records[i] = crc_of(data + starts[first + i], sizes[first + i], seed);
        crc_results(records, some, results + first);
    }
}

static bool are_inside(const int64_t *starts, const int64_t *sizes, Py_ssize_t count, Py_ssize_t length)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (starts[i] < 0 || sizes[i] < 0 || starts[i] > length || sizes[i] > length - starts[i])
            return false;
    return true;
}

static PyObject *checksums(PyObject *module, PyObject *arguments)
{
    Py_buffer data, starts, sizes;
    unsigned int seed;
    if (!PyArg_ParseTuple(arguments, "y*y*y*I", &data, &starts, &sizes, &seed))
        return NULL;
    PyObject *results = NULL;
    Py_ssize_t count = starts.len / 8;
    if (starts.len % 8 || sizes.len != starts.len || !are_inside(starts.buf, sizes.buf, count, data.len))
        PyErr_SetString(PyExc_ValueError, "places and sizes are int64, and lie within the data");
    else
        results = PyBytes_FromStringAndSize(NULL, 4 * count);
    if (results != NULL) {
        uint32_t *into = (uint32_t *)PyBytes_AsString(results);
        Py_BEGIN_ALLOW_THREADS
        checksums_of(data.buf, starts.buf, sizes.buf, count, seed, into);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&sizes);
    return results;
}

static PyMethodDef functions[] = {
    {"checksums", checksums, METH_VARARGS, "checksums(data, starts, sizes, seed): uint32 of each record, as bytes"},
    {NULL},
};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.flight.checksums", "CRC-32C of many records.", -1,
#ifdef IS_ACCELERATED
    functions,
#endif
};

PyMODINIT_FUNC PyInit_checksums(void)
{
#ifdef IS_ACCELERATED
    if (IS_ACCELERATED)
        return PyModule_Create(&definition);
#endif
    return PyErr_Format(PyExc_ImportError, "%s needs an instruction that this processor does not have", definition.m_name);
}
