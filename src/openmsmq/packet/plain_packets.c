/* Plain UserMessage packets ([MS-MQMQ] 2.2.19, 2.2.20), and their conversion into message records. A packet is plain if
   it has no transaction, signature, encryption, trace, SOAP, HTTP or multiple-element header.

   Packets of one sender to one queue usually differ only in a few fields. The other bytes are the *envelope* of a packet.
   The Python code (`packet`, `conversion.packets`, `peering.arrival`) reads the first packet with an envelope, and its
   record without body, extension and label is the *form* for all of them.

   A packet that is not plain or not valid is read by Python, which reports its errors. So this may reject a packet that
   Python accepts, never the reverse. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../record/record_writer.h"
#include "../store/column.h"
#include "packet_offsets.h"

/* Offsets in a SecurityHeader. */
enum { SENDER_SIZE = 2, KEY_SIZE = 4, SIGNATURE_SIZE = 6, CERTIFICATE_SIZE = 8, PROVIDER_SIZE = 12, SECURITY_END = 16 };

enum { VERSION = 0x10, HAS_SESSION = 0x10, SESSION_HEADER = 16, ENCRYPTED = 0x20 };
enum { HAS_SECURITY = 1 << 19, HAS_PROPERTIES = 1 << 21 };
/* UserHeader.Flags of plain packets: RC, DM, JN, JP, DQ, AQ, RQ, SH and PH. */
enum { PLAIN_FLAGS = 0x1F | 3 << 5 | 3 << 8 | 0x1FF << 10 | HAS_SECURITY | HAS_PROPERTIES };
enum { DIRECT = 7, LARGEST = 1 << 20 };

static const uint32_t INFINITE = UINT32_MAX;
static const unsigned char SIGNATURE_BYTES[4] = "LIOR";
/* Bytes of a queue name by its type; direct ones have a length. */
static const uint8_t NAME_SIZES[DIRECT] = {0, 0, 4, 4, 4, 16, 20};
/* Types that are allowed for destination, administration and response queue, as in `packet.headers`. */
static const uint8_t ALLOWED[3] = {1 << 0 | 1 << 3 | 1 << 5 | 1 << 7, 0xFF & ~(1 << 1 | 1 << 4), 0xFF};

typedef struct {
    const unsigned char *packet;
    uint32_t properties; /* offset of MessagePropertiesHeader, which follows the names and the SecurityHeader */
    uint8_t delivery;
    Part extension, body;
    Label label;
} Plain;

static uint32_t half_at(const unsigned char *data, size_t at) { return data[at] | data[at + 1] << 8; }

static uint32_t word_at(const unsigned char *data, size_t at)
{
    uint32_t value;
    memcpy(&value, data + at, 4);
    return value;
}

static size_t padded(size_t size) { return (size + 3) & ~(size_t)3; }

/* Whether a text has one null, at its end. */
static bool is_terminated(const unsigned char *text, size_t size)
{
    if (!size || size % 2)
        return false;
    for (size_t at = 0; at < size; at += 2)
        if (!half_at(text, at) != (at + 2 == size))
            return false;
    return true;
}

/* Return the end of the queue names of a packet, 0 if they are not valid. */
static size_t end_of_names(const unsigned char *packet, size_t size, uint32_t flags)
{
    size_t at = NAMES;
    for (int name = 0; name < 3; name++) {
        uint32_t type = flags >> (10 + 3 * name) & 7;
        if (!(ALLOWED[name] >> type & 1))
            return 0;
        size_t length = type == DIRECT ? 2 : NAME_SIZES[type];
        if (size - at < length)
            return 0;
        if (type == DIRECT) {
            uint32_t text = half_at(packet, at);
            length = padded(length + text);
            if (size - at < length || !is_terminated(packet + at + 2, text))
                return 0;
        }
        at += length;
    }
    return at;
}

/* Return the end of a SecurityHeader, 0 if it has more than the identifier of a sender. */
static size_t end_of_security(const unsigned char *packet, size_t size, size_t at)
{
    if (size - at < SECURITY_END)
        return 0;
    const unsigned char *header = packet + at;
    if (half_at(header, 0) & ENCRYPTED || half_at(header, KEY_SIZE) || half_at(header, SIGNATURE_SIZE)
        || word_at(header, CERTIFICATE_SIZE) || word_at(header, PROVIDER_SIZE))
        return 0;
    size_t length = padded(SECURITY_END + half_at(header, SENDER_SIZE));
    return size - at < length ? 0 : at + length;
}

/* Read a whole packet. Returns whether it is plain. */
static bool read_plain(Plain *plain, const unsigned char *packet, size_t size)
{
    if (size < NAMES + PROPERTIES_END || size > LARGEST)
        return false;
    uint32_t base = half_at(packet, BASE_FLAGS), flags = word_at(packet, USER_FLAGS);
    if (base & HAS_SESSION)
        size -= SESSION_HEADER;
    plain->packet = packet;
    plain->delivery = flags >> 5 & 3;
    if (packet[0] != VERSION || base & ~(PRIORITY | HAS_SESSION) || memcmp(packet + SIGNATURE_OF, SIGNATURE_BYTES, 4)
        || word_at(packet, PACKET_SIZE) != size || flags & ~(uint32_t)PLAIN_FLAGS || !(flags & HAS_PROPERTIES)
        || plain->delivery > 1)
        return false;
    size_t at = end_of_names(packet, size, flags);
    if (at && flags & HAS_SECURITY)
        at = end_of_security(packet, size, at);
    if (!at || size - at < PROPERTIES_END)
        return false;
    const unsigned char *header = packet + at;
    uint32_t units = header[LABEL_UNITS], body = word_at(header, BODY_SIZE), extension = word_at(header, EXTENSION_SIZE);
    size_t length = PROPERTIES_END + 2 * units;
    if (word_at(header, PRIVACY) || word_at(header, ALLOCATED) < body || body > size || extension > size
        || units > LONGEST_LABEL + 1 || padded(length + extension + body) != size - at
        || (units && !is_terminated(header + PROPERTIES_END, 2 * units)))
        return false;
    plain->properties = (uint32_t)at;
    plain->label = (Label){header + PROPERTIES_END, units, 0};
    plain->extension = (Part){header + length, extension};
    plain->body = (Part){header + length + extension, body};
    return measure_label(&plain->label);
}

static bool read_item(Plain *plain, PyObject *packet)
{
    return PyBytes_CheckExact(packet)
        && read_plain(plain, (unsigned char *)PyBytes_AS_STRING(packet), PyBytes_GET_SIZE(packet));
}

static PyObject *delivery(PyObject *module, PyObject *packet)
{
    Plain plain;
    (void)module;
    return PyLong_FromLong(read_item(&plain, packet) ? plain.delivery : -1);
}

static PyObject *properties(PyObject *module, PyObject *packet)
{
    Plain plain;
    (void)module;
    return PyLong_FromLong(read_item(&plain, packet) ? (long)plain.properties : -1);
}

/* --------------------------------------------------------------------------------------------------------- envelopes */

static size_t envelope_size(const Plain *plain) { return 4 + (SENT - USER) + 4 + (plain->properties - NAMES) + 4; }

/* Everything but priority, time, message identifier, sizes and the content of the MessagePropertiesHeader. */
static void write_envelope(unsigned char *into, const Plain *plain)
{
    const unsigned char *packet = plain->packet, *header = packet + plain->properties;
    into = write_part(into, packet + TO_QUEUE, 4);
    into = write_part(into, packet + USER, SENT - USER);
    into = write_part(into, packet + USER_FLAGS, 4);
    into = write_part(into, packet + NAMES, plain->properties - NAMES);
    into = write_part(into, header + ACKNOWLEDGE, 1);
    *into++ = 0;
    write_part(into, header + CLASS, 2);
}

static PyObject *envelopes(PyObject *module, PyObject *packets)
{
    (void)module;
    if (!PyList_CheckExact(packets))
        return PyErr_Format(PyExc_TypeError, "envelopes() takes a list of packets");
    PyObject *found = PyList_New(0), *last = NULL; /* `last` is in the list */
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(packets); i++) {
        Plain plain;
        if (!read_item(&plain, PyList_GET_ITEM(packets, i)))
            break;
        PyObject *envelope = PyBytes_FromStringAndSize(NULL, envelope_size(&plain));
        if (envelope == NULL) {
            Py_CLEAR(found);
            break;
        }
        write_envelope((unsigned char *)PyBytes_AS_STRING(envelope), &plain);
        if (last != NULL && PyBytes_GET_SIZE(last) == PyBytes_GET_SIZE(envelope)
            && !memcmp(PyBytes_AS_STRING(last), PyBytes_AS_STRING(envelope), PyBytes_GET_SIZE(last))) {
            Py_DECREF(envelope); /* the same object has its hash already */
            envelope = Py_NewRef(last);
        }
        if (PyList_Append(found, envelope) < 0)
            Py_CLEAR(found);
        last = envelope;
        Py_DECREF(envelope);
    }
    return found;
}

/* ----------------------------------------------------------------------------------------------------------- records */

typedef struct {
    const unsigned char *record; /* without body, extension and label */
    uint32_t sender, rest;       /* bytes of the sender and of the parts after the label */
    uint32_t charged;            /* bytes that the message counts for, without these parts */
} Form;

static bool read_form(Form *form, PyObject *given, const Layout *layout)
{
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(given, 0)))
        return false;
    form->record = (unsigned char *)PyBytes_AS_STRING(PyTuple_GET_ITEM(given, 0));
    form->charged = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(given, 1));
    size_t size = PyBytes_GET_SIZE(PyTuple_GET_ITEM(given, 0));
    if (PyErr_Occurred() || size < layout->size)
        return false;
    form->sender = word_at(form->record, layout->lengths + 4 * SENDER);
    if (size - layout->size < form->sender)
        return false;
    form->rest = (uint32_t)(size - layout->size - form->sender);
    return true;
}

static bool has_expired(const Plain *plain, uint32_t seconds)
{
    uint32_t lifetime = word_at(plain->packet, TO_QUEUE);
    return lifetime != INFINITE && (int64_t)(int32_t)(seconds - word_at(plain->packet, SENT)) > (int64_t)lifetime;
}

static size_t record_size(const Plain *plain, const Form *form, const Layout *layout)
{
    return (size_t)layout->size + plain->body.size + plain->extension.size + plain->label.size + form->sender + form->rest;
}

static void write_record(unsigned char *record, const Plain *plain, const Form *form, const Layout *layout, uint32_t seconds)
{
    const unsigned char *packet = plain->packet, *header = packet + plain->properties;
    memcpy(record, form->record, layout->size);
    record[layout->priority] = packet[BASE_FLAGS] & PRIORITY;
    memcpy(record + layout->tag, header + TAG, 4);
    memcpy(record + layout->body_type, header + BODY_TYPE, 4);
    memcpy(record + layout->sent, packet + SENT, 4);
    write_word(record, layout->arrived, seconds);
    memcpy(record + layout->hash, header + HASH, 4);
    memcpy(record + layout->encryption, header + CIPHER, 4);
    memcpy(record + layout->identifier + MACHINE, packet + MESSAGE_ID, 4);
    memcpy(record + layout->correlation, header + CORRELATION, IDENTIFIER);
    write_word(record, layout->lengths + 4 * BODY, plain->body.size);
    write_word(record, layout->lengths + 4 * EXTENSION, plain->extension.size);
    write_word(record, layout->lengths + 4 * LABEL, plain->label.size);
    const unsigned char *parts = form->record + layout->size;
    unsigned char *at = record + layout->size;
    at = write_part(at, plain->body.data, plain->body.size);
    at = write_part(at, plain->extension.data, plain->extension.size);
    at = write_part(at, parts, form->sender);
    at = write_label(at, &plain->label);
    write_part(at, parts + form->sender, form->rest);
}

/* Read the packets at the beginning of the list that have not expired. */
static Py_ssize_t read_packets(Plain *plains, Form *forms, PyObject *packets, PyObject *given, const Layout *layout,
                               uint32_t seconds, size_t *total)
{
    Py_ssize_t count = PyList_GET_SIZE(packets), some = 0;
    *total = 0;
    for (; some < count; some++) {
        if (!read_form(&forms[some], PyList_GET_ITEM(given, some), layout)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "forms are tuples of a record and the bytes that it counts for");
            return -1;
        }
        if (!read_item(&plains[some], PyList_GET_ITEM(packets, some)) || has_expired(&plains[some], seconds))
            break;
        *total += record_size(&plains[some], &forms[some], layout);
    }
    return some;
}

static PyObject *records(PyObject *module, PyObject *arguments)
{
    PyObject *packets, *given, *result = NULL;
    Py_buffer described;
    unsigned long long sequence;
    unsigned int seconds;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!y*KI", &PyList_Type, &packets, &PyList_Type, &given, &described, &sequence,
                          &seconds))
        return NULL;
    const Layout *layout = described.buf;
    Py_ssize_t room = PyList_GET_SIZE(packets), count = -1;
    size_t total = 0;
    Plain *plains = PyMem_New(Plain, room + 1);
    Form *forms = PyMem_New(Form, room + 1);
    if (plains == NULL || forms == NULL)
        PyErr_NoMemory();
    else if (described.len != sizeof(Layout) || PyList_GET_SIZE(given) != room)
        PyErr_SetString(PyExc_ValueError, "as many forms as packets, and a layout, are needed");
    else
        count = read_packets(plains, forms, packets, given, layout, seconds, &total);
    PyObject *made = NULL, *bounds = NULL, *words = NULL, *keys = NULL, *charged = NULL, *identifiers = NULL;
    int64_t *bound;
    uint64_t *word, *key;
    uint32_t *counted;
    if (count < 0 || !(made = PyBytes_FromStringAndSize(NULL, total))
        || !(bounds = new_column(one_i64, count + 1, &bound)) || !(words = new_column(one_u64, count, &word))
        || !(keys = new_column(one_u64, count, &key)) || !(charged = new_column(one_u32, count, &counted))
        || !(identifiers = PyList_New(count)))
        goto end;
    unsigned char *record = (unsigned char *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < count; i++, sequence++) {
        const Plain *plain = &plains[i];
        size_t size = record_size(plain, &forms[i], layout);
        write_record(record, plain, &forms[i], layout, seconds);
        PyObject *identifier = PyBytes_FromStringAndSize((char *)record + layout->identifier, IDENTIFIER);
        if (identifier == NULL)
            goto end;
        PyList_SET_ITEM(identifiers, i, identifier);
        bound[i + 1] = bound[i] + (int64_t)size;
        word[i] = (uint64_t)(PRIORITY - record[layout->priority]) << 56;
        key[i] = sequence;
        counted[i] = forms[i].charged + 2 * plain->label.units + plain->extension.size + plain->body.size;
        record += size;
    }
    result = PyTuple_Pack(6, made, bounds, keys, words, charged, identifiers);
end:
    Py_XDECREF(made);
    Py_XDECREF(bounds);
    Py_XDECREF(words);
    Py_XDECREF(keys);
    Py_XDECREF(charged);
    Py_XDECREF(identifiers);
    PyMem_Free(plains);
    PyMem_Free(forms);
    PyBuffer_Release(&described);
    return result;
}

static PyMethodDef functions[] = {
    {"delivery", delivery, METH_O, "delivery(packet): of a plain packet, 0 or 1; -1 for others"},
    {"properties", properties, METH_O, "properties(packet): offset of its MessagePropertiesHeader; -1 if it is not plain"},
    {"envelopes", envelopes, METH_O, "envelopes(packets): of the plain packets at the beginning"},
    {"records", records, METH_VARARGS,
     "records(packets, forms, layout, sequence, seconds): for the plain packets at the beginning that have not expired, "
     "records, bounds, keys, words, charged sizes and identifiers"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.packet.plain_packets", "Records of plain packets.", -1, functions,
};

PyMODINIT_FUNC PyInit_plain_packets(void)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    PyErr_SetString(PyExc_ImportError, "packets are little-endian, and this machine is not");
    return NULL;
#else
    return prepare_columns() < 0 ? NULL : PyModule_Create(&definition);
#endif
}
