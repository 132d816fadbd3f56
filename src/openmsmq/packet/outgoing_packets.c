/* Plain UserMessage packets of message records: the counterpart of `plain_packets.c`.

   Messages of one application for one queue usually differ only in a few fields. All other bytes of a record are its
   *shape*. The Python code (`conversion.packets`, `peering.sender`) makes the packet of the first record with a shape, and
   that is the template for all of them.

   Records that are not valid, or whose messages have acknowledgments, transactions or several destinations, are left to
   Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static uint32_t word_at(const unsigned char *data, size_t at)
{
    uint32_t value;
    memcpy(&value, data + at, 4);
    return value;
}

#include "../record/record_reader.h"
#include "packet_offsets.h"

enum { SHA1 = 0x8004, RC4 = 0x6801, LONGEST_LABEL = 249 }; /* defaults of hash and cipher, as in `packet.headers` */

typedef struct {
    unsigned char buffer[LONGEST_FIXED];
    const unsigned char *fixed; /* the fixed part in plain form */
    Part parts[PARTS];
} Record;

static bool read_record(Record *record, PyObject *given, const Layout *layout)
{
    if (!PyBytes_CheckExact(given))
        return false;
    record->fixed = split_record(record->parts, (unsigned char *)PyBytes_AS_STRING(given), PyBytes_GET_SIZE(given), layout,
                                 record->buffer);
    return record->fixed != NULL && record->parts[LABEL].units <= LONGEST_LABEL;
}

static bool read_layout(const Layout **layout, const Py_buffer *described)
{
    *layout = described->buf;
    if (described->len == sizeof(Layout) && (*layout)->size <= LONGEST_FIXED)
        return true;
    PyErr_SetString(PyExc_ValueError, "not a layout of records");
    return false;
}

/* ------------------------------------------------------------------------------------------------------------- shapes */

static bool varies(int part) { return part == BODY || part == EXTENSION || part == LABEL; }

static PyObject *shape_of(const Record *record, const Layout *layout)
{
    const uint32_t cleared[][2] = {
        {layout->priority, 1}, {layout->tag, 4}, {layout->body_type, 4}, {layout->sent, 4}, {layout->arrived, 4},
        {layout->hash, 4}, {layout->encryption, 4}, {layout->identifier, IDENTIFIER}, {layout->correlation, IDENTIFIER},
        {layout->milliseconds, 2},
        {layout->lengths + 4 * BODY, 4}, {layout->lengths + 4 * EXTENSION, 4}, {layout->lengths + 4 * LABEL, 4},
    };
    size_t size = layout->size;
    for (int part = 0; part < PARTS; part++)
        size += varies(part) ? 0 : record->parts[part].size;
    PyObject *shape = PyBytes_FromStringAndSize(NULL, size);
    if (shape == NULL)
        return NULL;
    unsigned char *into = (unsigned char *)PyBytes_AS_STRING(shape);
    memcpy(into, record->fixed, layout->size);
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        memset(into + cleared[i][0], 0, cleared[i][1]);
    into += layout->size;
    for (int part = 0; part < PARTS; part++) {
        if (varies(part) || !record->parts[part].size)
            continue;
        memcpy(into, record->parts[part].data, record->parts[part].size);
        into += record->parts[part].size;
    }
    return shape;
}

static PyObject *shapes(PyObject *module, PyObject *arguments)
{
    PyObject *records, *found = NULL;
    Py_buffer described;
    const Layout *layout;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!y*", &PyList_Type, &records, &described))
        return NULL;
    if (read_layout(&layout, &described))
        found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(records); i++) {
        Record record;
        if (!read_record(&record, PyList_GET_ITEM(records, i), layout))
            break;
        PyObject *shape = shape_of(&record, layout);
        if (shape == NULL || PyList_Append(found, shape) < 0)
            Py_CLEAR(found);
        Py_XDECREF(shape);
    }
    PyBuffer_Release(&described);
    return found;
}

/* ------------------------------------------------------------------------------------------------------------ packets */

typedef struct {
    const unsigned char *packet;
    uint32_t properties; /* offset of MessagePropertiesHeader */
} Template;

static bool read_template(Template *template, PyObject *given)
{
    if (PyTuple_CheckExact(given) && PyTuple_GET_SIZE(given) == 2 && PyBytes_CheckExact(PyTuple_GET_ITEM(given, 0))) {
        PyObject *packet = PyTuple_GET_ITEM(given, 0);
        unsigned long properties = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(given, 1));
        template->packet = (unsigned char *)PyBytes_AS_STRING(packet);
        template->properties = (uint32_t)properties;
        if (!PyErr_Occurred() && properties >= NAMES
            && properties + PROPERTIES_END <= (unsigned long)PyBytes_GET_SIZE(packet))
            return true;
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "templates are tuples of a packet and the offset of its properties");
    return false;
}

static void write_word(unsigned char *into, size_t at, uint32_t value) { memcpy(into + at, &value, 4); }

static void write_half(unsigned char *into, uint32_t value)
{
    into[0] = (unsigned char)value;
    into[1] = (unsigned char)(value >> 8);
}

/* Write a text, whose UTF-8 `count_units` has checked, and its terminator; nothing for an empty text. */
static unsigned char *write_label(unsigned char *into, const Part *text)
{
    const unsigned char *at = text->data, *end = at + text->size;
    if (at == end)
        return into;
    while (at < end) {
        uint32_t point = (uint32_t)next_point(&at, end);
        if (point > 0xFFFF) {
            write_half(into, 0xD800 + ((point - 0x10000) >> 10));
            into += 2;
            point = 0xDC00 + ((point - 0x10000) & 0x3FF);
        }
        write_half(into, point);
        into += 2;
    }
    write_half(into, 0);
    return into + 2;
}

static PyObject *packet_of(const Record *record, const Template *template, const Layout *layout)
{
    const Part *body = &record->parts[BODY], *extension = &record->parts[EXTENSION], *label = &record->parts[LABEL];
    const unsigned char *fixed = record->fixed;
    uint32_t units = label->size ? label->units + 1 : 0, hash = word_at(fixed, layout->hash);
    uint32_t cipher = word_at(fixed, layout->encryption);
    size_t length = PROPERTIES_END + 2 * (size_t)units + extension->size + body->size, padding = -length & 3;
    size_t size = template->properties + length + padding;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL)
        return NULL;
    unsigned char *packet = (unsigned char *)PyBytes_AS_STRING(made), *header = packet + template->properties;
    memcpy(packet, template->packet, template->properties + PROPERTIES_END);
    packet[BASE_FLAGS] = (unsigned char)((packet[BASE_FLAGS] & ~PRIORITY) | (fixed[layout->priority] & PRIORITY));
    write_word(packet, PACKET_SIZE, (uint32_t)size);
    memcpy(packet + SENT, fixed + layout->sent, 4);
    memcpy(packet + MESSAGE_ID, fixed + layout->identifier + GUID, 4);
    header[LABEL_UNITS] = (unsigned char)units;
    memcpy(header + CORRELATION, fixed + layout->correlation, IDENTIFIER);
    memcpy(header + BODY_TYPE, fixed + layout->body_type, 4);
    memcpy(header + TAG, fixed + layout->tag, 4);
    write_word(header, BODY_SIZE, body->size);
    write_word(header, ALLOCATED, body->size);
    write_word(header, HASH, hash ? hash : SHA1);
    write_word(header, CIPHER, cipher ? cipher : RC4);
    write_word(header, EXTENSION_SIZE, extension->size);
    unsigned char *at = write_label(header + PROPERTIES_END, label);
    if (extension->size)
        memcpy(at, extension->data, extension->size);
    at += extension->size;
    if (body->size)
        memcpy(at, body->data, body->size);
    memset(at + body->size, 0, padding);
    return made;
}

static PyObject *packets(PyObject *module, PyObject *arguments)
{
    PyObject *records, *templates, *found = NULL;
    Py_buffer described;
    const Layout *layout;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!y*", &PyList_Type, &records, &PyList_Type, &templates, &described))
        return NULL;
    if (PyList_GET_SIZE(records) != PyList_GET_SIZE(templates))
        PyErr_SetString(PyExc_ValueError, "as many templates as records are needed");
    else if (read_layout(&layout, &described))
        found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(records); i++) {
        Record record;
        Template template;
        PyObject *packet = NULL;
        if (!read_template(&template, PyList_GET_ITEM(templates, i))) {
            Py_CLEAR(found);
            break;
        }
        if (!read_record(&record, PyList_GET_ITEM(records, i), layout))
            break;
        if ((packet = packet_of(&record, &template, layout)) == NULL || PyList_Append(found, packet) < 0)
            Py_CLEAR(found);
        Py_XDECREF(packet);
    }
    PyBuffer_Release(&described);
    return found;
}

static PyMethodDef functions[] = {
    {"shapes", shapes, METH_VARARGS, "shapes(records, layout): of the simple records at the beginning"},
    {"packets", packets, METH_VARARGS, "packets(records, templates, layout): of the simple records at the beginning"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.packet.outgoing_packets", "Packets of records.", -1, functions,
};

PyMODINIT_FUNC PyInit_outgoing_packets(void)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    PyErr_SetString(PyExc_ImportError, "packets are little-endian, and this machine is not");
    return NULL;
#else
    return PyModule_Create(&definition);
#endif
}
