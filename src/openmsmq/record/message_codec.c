/* Encoder and decoder of message records; `openmsmq.record.message_record` has the same functions in Python, which are
   used if this module is not compiled.

   Unusual messages and records are left to the functions in Python, which also raise all errors. */

#define PY_SSIZE_T_CLEAN
#include "../model/message_slots.h"
#include "compact_record.h"

enum { MOST_PARTS = 16, BITS = 3 };

/* An attribute: its offset in a message, and its bytes in the fixed part; width 0 for parts and others. */
typedef struct {
    Py_ssize_t slot;
    uint32_t at, width;
    bool is_bytes; /* otherwise a number, or in a part a text */
} Attribute;

/* Set once, by `describe`. */
static PyTypeObject *type;
static PyObject *encode_in_python, *decode_in_python;
static Description form;
static Attribute fields[MOST_FIELDS], parts[MOST_PARTS];
static Attribute bits[BITS], key, signature, names; /* bits are those of `flags`, from the lowest; the last two the tail */
static uint32_t field_count, part_count, flags_at, tail_at;

static PyObject **slot_of(PyObject *message, const Attribute *attribute) { return slot_at(message, attribute->slot); }

/* Read (name, offset, width, is_bytes) tuples. Returns their number, or -1 with an error. */
static Py_ssize_t find_slots(PyObject *described, Attribute *attributes, Py_ssize_t most)
{
    if (!PyTuple_Check(described) || PyTuple_GET_SIZE(described) > most) {
        PyErr_Format(PyExc_ValueError, "at most %zd attributes", most);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(described); i++) {
        const char *name;
        unsigned int at, width;
        int is_bytes;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(described, i), "sIIp", &name, &at, &width, &is_bytes)
            || (attributes[i].slot = find_slot(type, name)) < 0)
            return -1;
        if (width > form.lengths || at > form.lengths - width || (!is_bytes && width > 4)) {
            PyErr_Format(PyExc_ValueError, "%s is outside of the fixed part", name);
            return -1;
        }
        attributes[i].at = at;
        attributes[i].width = width;
        attributes[i].is_bytes = is_bytes;
    }
    return PyTuple_GET_SIZE(described);
}

static PyObject *describe(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *message, *of_fields, *of_parts, *of_bits, *encode, *decode;
    const char *description;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "O!OOOIIy#OO", &PyType_Type, &message, &of_fields, &of_parts, &of_bits, &flags_at,
                          &tail_at, &description, &size, &encode, &decode))
        return NULL;
    if (size != sizeof form)
        return PyErr_Format(PyExc_ValueError, "a description has %zu bytes", sizeof form);
    memcpy(&form, description, sizeof form);
    type = (PyTypeObject *)Py_NewRef(message);
    Py_ssize_t with_fields = find_slots(of_fields, fields, MOST_FIELDS);
    Py_ssize_t with_parts = with_fields < 0 ? -1 : find_slots(of_parts, parts, MOST_PARTS);
    if (with_parts < 0 || find_slots(of_bits, bits, BITS) < 0 || (key.slot = find_slot(type, "lookup_identifier")) < 0
        || (signature.slot = find_slot(type, "multiple_destination_signature")) < 0
        || (names.slot = find_slot(type, "destination_multi_queue_format_name")) < 0)
        return NULL;
    if (form.lengths + 4 * with_parts != form.size || form.size > LONGEST_FIXED || with_parts != form.parts
        || PyTuple_GET_SIZE(of_bits) != BITS || flags_at >= form.lengths || tail_at > form.lengths - 4)
        return PyErr_Format(PyExc_ValueError, "the description contradicts the attributes");
    field_count = (uint32_t)with_fields;
    part_count = (uint32_t)with_parts;
    encode_in_python = Py_NewRef(encode);
    decode_in_python = Py_NewRef(decode);
    Py_RETURN_NONE;
}

static void write_number(unsigned char *to, uint64_t value, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t read_number(const unsigned char *from, uint32_t width)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < width; i++)
        value |= (uint32_t)from[i] << 8 * i;
    return value;
}

/* Write an attribute into the fixed part; returns whether it has the usual type and size. */
static bool write_field(unsigned char *fixed, const Attribute *field, PyObject *value)
{
    if (value == NULL)
        return false;
    if (field->is_bytes) {
        if (!PyBytes_Check(value) || PyBytes_GET_SIZE(value) != field->width)
            return false;
        memcpy(fixed + field->at, PyBytes_AS_STRING(value), field->width);
        return true;
    }
    if (!PyLong_Check(value))
        return false;
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || number < 0 || (uint64_t)number >> 8 * field->width)
        return false;
    write_number(fixed + field->at, (uint64_t)number, field->width);
    return true;
}

/* Set the bytes of a part; returns whether it has the usual type. */
static bool bytes_of(const Attribute *part, PyObject *value, const char **data, Py_ssize_t *size)
{
    if (value == NULL)
        return false;
    if (!part->is_bytes) {
        *data = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, size) : NULL;
        if (*data == NULL)
            PyErr_Clear(); /* half of a surrogate pair, which only the function in Python encodes */
    } else
        *data = PyBytes_Check(value) ? (*size = PyBytes_GET_SIZE(value), PyBytes_AS_STRING(value)) : NULL;
    return *data != NULL && (uint64_t)*size <= UINT32_MAX;
}

/* The record of a message, without a tail; NULL, with or without an error, if it has to be encoded in Python. */
static PyObject *usual_record(PyObject *message)
{
    unsigned char fixed[LONGEST_FIXED] = {PLAIN_FORM};
    const char *data[MOST_PARTS];
    Py_ssize_t sizes[MOST_PARTS], total = form.size;
    PyObject *tail = *slot_of(message, &signature), *several = *slot_of(message, &names);
    if (tail == NULL || !PyBytes_Check(tail) || PyBytes_GET_SIZE(tail) || several == NULL || !PyUnicode_Check(several)
        || PyUnicode_GET_LENGTH(several))
        return NULL;
    for (uint32_t i = 0; i < field_count; i++)
        if (!write_field(fixed, &fields[i], *slot_of(message, &fields[i])))
            return NULL;
    for (uint32_t i = 0; i < BITS; i++) {
        PyObject *is_set = *slot_of(message, &bits[i]);
        if (is_set == Py_True)
            fixed[flags_at] |= (unsigned char)(1u << i);
        else if (is_set != Py_False)
            return NULL;
    }
    for (uint32_t i = 0; i < part_count; i++) {
        if (!bytes_of(&parts[i], *slot_of(message, &parts[i]), &data[i], &sizes[i]))
            return NULL;
        write_number(fixed + form.lengths + 4 * i, (uint64_t)sizes[i], 4);
        total += sizes[i];
    }
    PyObject *record = PyBytes_FromStringAndSize(NULL, total);
    if (record == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(record);
    memcpy(to, fixed, form.size);
    to += form.size;
    for (uint32_t i = 0; i < part_count; i++) {
        memcpy(to, data[i], (size_t)sizes[i]);
        to += sizes[i];
    }
    return record;
}

static PyObject *encode(PyObject *module, PyObject *message)
{
    (void)module;
    PyObject *record = Py_IS_TYPE(message, type) ? usual_record(message) : NULL;
    if (record != NULL || PyErr_Occurred())
        return record;
    return PyObject_CallOneArg(encode_in_python, message);
}

/* Set an attribute of a new message. Returns whether there is a value. */
static bool set(PyObject *message, const Attribute *attribute, PyObject *value)
{
    *slot_of(message, attribute) = value;
    return value != NULL;
}

/* The message of a record: its fixed part in plain form, and its parts. NULL with an error. */
static PyObject *message_of(const unsigned char *fixed, const char *data, PyObject *identifier)
{
    PyObject *message = type->tp_alloc(type, 0);
    if (message == NULL)
        return NULL;
    bool is_made = set(message, &key, Py_NewRef(identifier))
                   && set(message, &signature, PyBytes_FromStringAndSize(NULL, 0))
                   && set(message, &names, PyUnicode_FromStringAndSize(NULL, 0));
    for (uint32_t i = 0; i < BITS; i++)
        set(message, &bits[i], Py_NewRef(Py_False));
    for (uint32_t i = 0; is_made && i < field_count; i++) {
        const unsigned char *from = fixed + fields[i].at;
        is_made = set(message, &fields[i],
                      fields[i].is_bytes ? PyBytes_FromStringAndSize((const char *)from, fields[i].width)
                                         : PyLong_FromUnsignedLong(read_number(from, fields[i].width)));
    }
    for (uint32_t i = 0; is_made && i < part_count; i++) {
        Py_ssize_t size = read_number(fixed + form.lengths + 4 * i, 4);
        is_made = set(message, &parts[i],
                      parts[i].is_bytes ? PyBytes_FromStringAndSize(data, size)
                                        : PyUnicode_DecodeUTF8(data, size, "surrogatepass"));
        data += size;
    }
    if (!is_made)
        Py_CLEAR(message);
    return message;
}

static PyObject *decode(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    unsigned char expanded[LONGEST_FIXED];
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "decode(record, lookup_identifier)");
    if (PyBytes_Check(arguments[0])) {
        const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(arguments[0]), *fixed = expanded;
        size_t size = (size_t)PyBytes_GET_SIZE(arguments[0]), start = expand_fixed(&form, data, size, expanded);
        if (!start && size >= form.size && data[0] == PLAIN_FORM) {
            fixed = data;
            start = form.size;
        }
        if (start && !fixed[flags_at] && !read_number(fixed + tail_at, 4)) {
            uint64_t end = start;
            for (uint32_t i = 0; i < part_count; i++)
                end += read_number(fixed + form.lengths + 4 * i, 4);
            if (end == size)
                return message_of(fixed, (const char *)data + start, arguments[1]);
        }
    }
    return PyObject_Vectorcall(decode_in_python, arguments, 2, NULL);
}

static PyMethodDef functions[] = {
    {"describe", describe, METH_VARARGS,
     "describe(type, fields, parts, bits, flags_at, tail_at, description, encode, decode): set the slots of messages and "
     "the fields of a record; once, before anything else"},
    {"encode", encode, METH_O, "encode(message): its record in plain form"},
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL,
     "decode(record, lookup_identifier): the message of a record in either form"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.record.message_codec", "Encoder and decoder of message records.", -1, functions,
};

PyMODINIT_FUNC PyInit_message_codec(void) { return PyModule_Create(&definition); }
