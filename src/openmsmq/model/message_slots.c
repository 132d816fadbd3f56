/* Copies of messages, and their sizes; `openmsmq.model.message` has the same functions in Python, which are used if this
   module is not compiled. Messages with attributes of unusual types are left to them. */

#define PY_SSIZE_T_CLEAN
#include "message_slots.h"

#include <stdbool.h>

enum { MOST = 64 };

/* Set once, by `describe`: offsets of all attributes, and of those that count for the size. */
static PyTypeObject *type;
static PyObject *copy_in_python, *size_in_python;
static Py_ssize_t all[MOST], texts[MOST], parts[MOST], all_count, text_count, part_count, overhead;

/* Find the slots of attributes. Returns their number, or -1 with an error. */
static Py_ssize_t find_slots(PyObject *names, Py_ssize_t *offsets)
{
    if (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) > MOST) {
        PyErr_Format(PyExc_ValueError, "at most %d names in a tuple", MOST);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        offsets[i] = name == NULL ? -1 : find_slot(type, name);
        if (offsets[i] < 0)
            return -1;
    }
    return PyTuple_GET_SIZE(names);
}

static PyObject *describe(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *message, *all_names, *text_names, *part_names, *copy, *size;
    if (!PyArg_ParseTuple(arguments, "O!OOOnOO", &PyType_Type, &message, &all_names, &text_names, &part_names, &overhead,
                          &copy, &size))
        return NULL;
    type = (PyTypeObject *)Py_NewRef(message);
    if ((all_count = find_slots(all_names, all)) < 0 || (text_count = find_slots(text_names, texts)) < 0
        || (part_count = find_slots(part_names, parts)) < 0)
        return NULL;
    copy_in_python = Py_NewRef(copy);
    size_in_python = Py_NewRef(size);
    Py_RETURN_NONE;
}

static PyObject *copy(PyObject *module, PyObject *message)
{
    (void)module;
    bool is_whole = Py_IS_TYPE(message, type);
    for (Py_ssize_t i = 0; is_whole && i < all_count; i++)
        is_whole = *slot_at(message, all[i]) != NULL;
    if (!is_whole)
        return PyObject_CallOneArg(copy_in_python, message);
    PyObject *made = type->tp_alloc(type, 0);
    for (Py_ssize_t i = 0; made != NULL && i < all_count; i++)
        *slot_at(made, all[i]) = Py_NewRef(*slot_at(message, all[i]));
    return made;
}

static PyObject *size(PyObject *module, PyObject *message)
{
    (void)module;
    Py_ssize_t bytes = overhead;
    bool is_usual = Py_IS_TYPE(message, type);
    for (Py_ssize_t i = 0; is_usual && i < text_count; i++) {
        PyObject *text = *slot_at(message, texts[i]);
        is_usual = text != NULL && PyUnicode_Check(text);
        bytes += is_usual ? 2 * PyUnicode_GET_LENGTH(text) : 0;
    }
    for (Py_ssize_t i = 0; is_usual && i < part_count; i++) {
        PyObject *part = *slot_at(message, parts[i]);
        is_usual = part != NULL && PyBytes_Check(part);
        bytes += is_usual ? PyBytes_GET_SIZE(part) : 0;
    }
    return is_usual ? PyLong_FromSsize_t(bytes) : PyObject_CallOneArg(size_in_python, message);
}

static PyMethodDef functions[] = {
    {"describe", describe, METH_VARARGS,
     "describe(type, all, texts, parts, overhead, copy, size): set the slots of messages; once, before anything else"},
    {"copy", copy, METH_O, "copy(message): a copy"},
    {"size", size, METH_O, "size(message): bytes that it counts for in quotas"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.model.message_slots", "Copies of messages, and their sizes.", -1, functions,
};

PyMODINIT_FUNC PyInit_message_slots(void) { return PyModule_Create(&definition); }
