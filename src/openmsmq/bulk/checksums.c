/* CRC-32C of many records at once.

   `openmsmq.bulk.segments` does the same with one call for each where this is not compiled. Processors that have an
   instruction for it get a result every third cycle but can begin one in each, so three records go side by side. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SIDE_BY_SIDE 3

#if defined(__x86_64__)
#define ACCELERATED __attribute__((target("sse4.2")))
#define WORD(crc, value) __builtin_ia32_crc32di(crc, value)
#define BYTE(crc, value) __builtin_ia32_crc32qi((uint32_t)(crc), value)
static bool is_accelerated(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define ACCELERATED __attribute__((target("arch=armv8-a+crc")))
#define WORD(crc, value) __crc32cd((uint32_t)(crc), value)
#define BYTE(crc, value) __crc32cb((uint32_t)(crc), value)
static bool is_accelerated(void) { return getauxval(AT_HWCAP) & (1 << 7); }
#endif

#ifdef ACCELERATED
typedef struct {
    const unsigned char *at, *end;
    uint64_t crc;
} Record;

ACCELERATED static void side_by_side(Record *r)
{
    Py_ssize_t words = PY_SSIZE_T_MAX;
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        words = Py_MIN(words, (r[i].end - r[i].at) / 8);
    uint64_t a = r[0].crc, b = r[1].crc, c = r[2].crc, x, y, z;
    for (Py_ssize_t word = 0; word < words; word++) {
        memcpy(&x, r[0].at + 8 * word, 8);
        memcpy(&y, r[1].at + 8 * word, 8);
        memcpy(&z, r[2].at + 8 * word, 8);
        a = WORD(a, x);
        b = WORD(b, y);
        c = WORD(c, z);
    }
    r[0].crc = a, r[1].crc = b, r[2].crc = c;
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        r[i].at += 8 * words;
}

ACCELERATED static uint32_t rest(const Record *record)
{
    uint64_t crc = record->crc, value;
    const unsigned char *at = record->at;
    for (; record->end - at >= 8; at += 8) {
        memcpy(&value, at, 8);
        crc = WORD(crc, value);
    }
    for (; at < record->end; at++)
        crc = BYTE(crc, *at);
    return ~(uint32_t)crc;
}

static void checksums_of(const unsigned char *data, const int64_t *starts, const int64_t *sizes, Py_ssize_t count,
                         uint32_t seed, uint32_t *results)
{
    for (Py_ssize_t first = 0; first < count; first += SIDE_BY_SIDE) {
        Py_ssize_t some = Py_MIN(SIDE_BY_SIDE, count - first);
        Record records[SIDE_BY_SIDE];
        for (Py_ssize_t i = 0; i < some; i++) {
            const unsigned char *at = data + starts[first + i];
            records[i] = (Record){at, at + sizes[first + i], ~seed};
        }
        if (some == SIDE_BY_SIDE)
            side_by_side(records);
        for (Py_ssize_t i = 0; i < some; i++)
            results[first + i] = rest(&records[i]);
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
        uint32_t *into = (uint32_t *)PyBytes_AS_STRING(results);
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
    PyModuleDef_HEAD_INIT, "openmsmq.bulk.checksums", "CRC-32C of many records.", -1,
#ifdef ACCELERATED
    functions,
#endif
};

PyMODINIT_FUNC PyInit_checksums(void)
{
#ifdef ACCELERATED
    if (is_accelerated())
        return PyModule_Create(&definition);
#endif
    return PyErr_Format(PyExc_ImportError, "%s needs an instruction that this processor does not have", definition.m_name);
}
