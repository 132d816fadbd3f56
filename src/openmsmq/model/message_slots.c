/* Copies of messages, and their sizes; without this module, `openmsmq.model.message` does the same in Python. */

#define PY_SSIZE_T_CLEAN
#include "message_slots.h"

#include <stdbool.h>

enum { MOST = 64 };

/* Set once, by `describe`: offsets of all attributes, and of those that count for the size. */
static PyTypeObject *type;
static PyObject *copy_in_python;
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
    PyObject *message, *all_names, *text_names, *part_names, *copy;
    if (!PyArg_ParseTuple(arguments, "O!OOOnO", &PyType_Type, &message, &all_names, &text_names, &part_names, &overhead,
                          &copy))
        return NULL;
    type = (PyTypeObject *)Py_NewRef(message);
    if ((all_count = find_slots(all_names, all)) < 0 || (text_count = find_slots(text_names, texts)) < 0
        || (part_count = find_slots(part_names, parts)) < 0)
        return NULL;
    copy_in_python = Py_NewRef(copy);
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

/* Add the lengths of attributes, each with a weight. Returns whether all have one, otherwise with an error. */
static bool add_lengths(PyObject *message, const Py_ssize_t *slots, Py_ssize_t count, int weight, Py_ssize_t *sum)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = *slot_at(message, slots[i]);
        if (value == NULL)
            PyErr_SetString(PyExc_AttributeError, "the message lacks an attribute");
        Py_ssize_t length = value == NULL ? -1 : PyObject_Size(value);
        if (length < 0)
            return false;
        *sum += weight * length;
    }
    return true;
}

static PyObject *size(PyObject *module, PyObject *message)
{
    (void)module;
    Py_ssize_t bytes = overhead;
    if (!Py_IS_TYPE(message, type))
        return PyErr_Format(PyExc_TypeError, "size(message)");
    if (!add_lengths(message, texts, text_count, 2, &bytes) || !add_lengths(message, parts, part_count, 1, &bytes))
        return NULL;
    return PyLong_FromSsize_t(bytes);
}

static PyMethodDef functions[] = {
    {"describe", describe, METH_VARARGS,
     "describe(type, all, texts, parts, overhead, copy): set the slots of messages; once, before anything else"},
    {"copy", copy, METH_O, "copy(message): a copy"},
    {"size", size, METH_O, "size(message): bytes that it counts for in quotas"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.model.message_slots", "Copies of messages, and their sizes.", -1, functions,
};

PyMODINIT_FUNC PyInit_message_slots(void) { return PyModule_Create(&definition); }
