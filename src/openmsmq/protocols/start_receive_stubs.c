/* Reads requests of R_StartReceive and R_EndReceive ([MS-MQRR] 3.1.4.7, 3.1.4.9), and encodes the answers to
   R_StartReceive from the records of simple messages: those whose receipt has no consequences, in a packet of one
   section that has only the headers of every message and a SecurityHeader that contains only the sender (2.2.5).

   For any other message, and for an invalid record, there is no answer: the Python code (`conversion.packets`,
   `packet.sections`) handles the message and its errors. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "stub_reader.h"
#include "../record/record_reader.h"
#include "stub_writer.h"

/* Sizes of headers, for UserHeader without names, and offsets of its fields ([MS-MQMQ] 2.2.19, 2.2.20). */
enum { BASE = 16, USER = 48, SECURITY = 16, PROPERTIES = 56, EXTENSION_HEADER = 12, SUBQUEUE = 148, ADDRESS = 28 };
enum { USER_TO_BE_RECEIVED = 32, USER_SENT = 36, USER_IDENTIFIER = 40, USER_FLAGS = 44 };
enum { DELIVERY_SHIFT = 5, NEGATIVE_JOURNALING = 1 << 8, POSITIVE_JOURNALING = 1 << 9, HAS_SECURITY = 1 << 19 };
enum { SENDER_IS_THERE = 1 << 7, HAS_SUBQUEUE = 2, HAS_ADDRESS = 16 };
enum { PACKET_VERSION = 0x10, LONGEST_LABEL = 0xFA, HIGHEST_PRIORITY = 7, LARGEST_TYPE = 0xF, ANSWER = 52 };
static const uint64_t LAST_SEQUENCE = 0x00FFFFFFFFFFFFFF; /* of a lookup identifier ([MS-MQDMPR] 3.1.1.12) */
static const uint32_t SIGNATURE_OF_PACKETS = 0x524F494C, SHA1 = 0x8004, RC4 = 0x6801;

typedef struct {
    const unsigned char *fixed, *user; /* fixed part of its record, and UserHeader of the names, `user_size` bytes */
    const Layout *layout;
    unsigned char room[LONGEST_FIXED]; /* for the fixed part, if the record is in compact form */
    Part parts[PARTS];
    uint32_t user_size, sender_type;
    uint64_t packet; /* bytes, without the headers after the UserMessage */
    bool has_sender;
} Message;

static uint32_t padding(uint64_t size) { return (uint32_t)(-size & 3); }

static uint32_t half_at(const unsigned char *data, size_t at) { return data[at] | data[at + 1] << 8; }

static void store(unsigned char *at, uint32_t value) { memcpy(at, &value, 4); }

static uint32_t label_units(const Message *message)
{
    uint32_t units = message->parts[LABEL].units;
    return units ? units + 1 : 0;
}

/* Whether the packet of the message is simple. */
static bool is_simple(Message *message, const Py_buffer *stored)
{
    static const unsigned char no_connector[GUID];
    const Layout *layout = message->layout;
    const Part *parts = message->parts;
    const unsigned char *record = split_record(message->parts, stored->buf, (size_t)stored->len, layout, message->room);
    if (record == NULL)
        return false;
    message->fixed = record;
    message->sender_type = word_at(record, layout->sender_type);
    message->has_sender = message->sender_type || parts[SENDER].size;
    return !parts[CERTIFICATE].size && !parts[KEY].size && !parts[SIGNATURE].size && !parts[PROVIDER].size
        && label_units(message) <= LONGEST_LABEL && parts[SENDER].size <= UINT16_MAX && message->sender_type <= LARGEST_TYPE
        && record[layout->delivery] <= 1 && record[layout->priority] <= HIGHEST_PRIORITY && !record[layout->tracing]
        && !record[layout->authentication] && !word_at(record, layout->privacy)
        && !memcmp(record + layout->connector, no_connector, GUID);
}

/* The key of a UserHeader: the machine of a message, the sizes of its names, and the names, which follow each other in its
   record. */
enum { NAME_SIZES = 4 * 3 };

static size_t size_of_names(const Message *message)
{
    const Part *first = &message->parts[DESTINATION], *last = &message->parts[RESPONSE];
    return (size_t)(last->data + last->size - first->data);
}

/* NULL with an exception set on failure. */
static PyObject *key_of(const Message *message)
{
    size_t names = size_of_names(message);
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(GUID + NAME_SIZES + names));
    if (key == NULL)
        return NULL;
    char *into = PyBytes_AS_STRING(key);
    memcpy(into, message->fixed + message->layout->machine, GUID);
    memcpy(into + GUID, message->fixed + message->layout->lengths + 4 * DESTINATION, NAME_SIZES);
    memcpy(into + GUID + NAME_SIZES, message->parts[DESTINATION].data, names);
    return key;
}

static bool is_key_of(const PyObject *key, const Message *message)
{
    size_t names = size_of_names(message);
    const char *from = PyBytes_AS_STRING(key);
    return (size_t)PyBytes_GET_SIZE(key) == GUID + NAME_SIZES + names
        && !memcmp(from, message->fixed + message->layout->machine, GUID)
        && !memcmp(from + GUID, message->fixed + message->layout->lengths + 4 * DESTINATION, NAME_SIZES)
        && !memcmp(from + GUID + NAME_SIZES, message->parts[DESTINATION].data, names);
}

/* ----------------------------------------------------------------------------------------------------- the packet */

static void put_base(Writer *out, const Message *message)
{
    const unsigned char *record = message->fixed;
    const Layout *layout = message->layout;
    uint32_t duration = word_at(record, layout->time_to_reach);
    uint64_t end = (uint64_t)word_at(record, layout->sent) + duration;
    unsigned char *at = place(out, BASE);
    if (at == NULL)
        return;
    at[0] = PACKET_VERSION;
    at[1] = 0;
    at[2] = record[layout->priority];
    at[3] = 0;
    store(at + 4, SIGNATURE_OF_PACKETS);
    store(at + 8, (uint32_t)message->packet);
    store(at + 12, duration == INFINITE || end > INFINITE ? INFINITE : (uint32_t)end);
}

static void put_user(Writer *out, const Message *message)
{
    const unsigned char *record = message->fixed;
    const Layout *layout = message->layout;
    unsigned char *at = place(out, message->user_size);
    if (at == NULL)
        return;
    memcpy(at, message->user, message->user_size);
    store(at + USER_TO_BE_RECEIVED, word_at(record, layout->time_to_be_received));
    store(at + USER_SENT, word_at(record, layout->sent));
    store(at + USER_IDENTIFIER, word_at(record, layout->identifier + GUID));
    uint32_t flags = word_at(at, USER_FLAGS), journaling = record[layout->journaling];
    flags |= (uint32_t)record[layout->delivery] << DELIVERY_SHIFT;
    flags |= (journaling & 1 ? NEGATIVE_JOURNALING : 0) | (journaling & 2 ? POSITIVE_JOURNALING : 0);
    store(at + USER_FLAGS, flags | (message->has_sender ? HAS_SECURITY : 0));
}

static void put_security(Writer *out, const Message *message)
{
    const Part *sender = &message->parts[SENDER];
    unsigned char *at = place(out, SECURITY);
    if (at == NULL)
        return;
    memset(at, 0, SECURITY);
    store(at, message->sender_type | (sender->size ? SENDER_IS_THERE : 0) | sender->size << 16);
    put_bytes(out, sender->data, sender->size, sender->size + padding(sender->size));
}

static void put_properties(Writer *out, const Message *message)
{
    const unsigned char *record = message->fixed;
    const Layout *layout = message->layout;
    const Part *body = &message->parts[BODY], *extension = &message->parts[EXTENSION];
    uint32_t label = label_units(message), cipher = word_at(record, layout->encryption);
    uint32_t hash = word_at(record, layout->hash);
    unsigned char *at = place(out, PROPERTIES);
    if (at == NULL)
        return;
    at[0] = 0;
    at[1] = (unsigned char)label;
    memcpy(at + 2, record + layout->message_class, 2);
    memcpy(at + 4, record + layout->correlation, IDENTIFIER);
    store(at + 24, word_at(record, layout->body_type));
    store(at + 28, word_at(record, layout->tag));
    store(at + 32, body->size);
    store(at + 36, body->size);
    store(at + 40, 0);
    store(at + 44, hash ? hash : SHA1);
    store(at + 48, cipher ? cipher : RC4);
    store(at + 52, extension->size);
    put_text(out, &message->parts[LABEL], label);
    put_bytes(out, extension->data, extension->size, extension->size);
    uint32_t size = PROPERTIES + 2 * label + extension->size + body->size;
    put_bytes(out, body->data, body->size, body->size + padding(size));
}

/* ExtensionHeader, SubqueueHeader, ExtendedAddressHeader. */
static void put_extension(Writer *out, const Message *message)
{
    const Layout *layout = message->layout;
    unsigned char *at = place(out, EXTENSION_HEADER + SUBQUEUE + ADDRESS);
    if (at == NULL)
        return;
    memset(at, 0, EXTENSION_HEADER + SUBQUEUE + ADDRESS);
    store(at, EXTENSION_HEADER);
    store(at + 4, SUBQUEUE + ADDRESS);
    at[8] = HAS_SUBQUEUE | HAS_ADDRESS;
    at += EXTENSION_HEADER;
    store(at, SUBQUEUE);
    store(at + 8, half_at(message->fixed, layout->aborts));
    store(at + 12, half_at(message->fixed, layout->moves));
    store(at + 16, word_at(message->fixed, layout->last_move) * 1000);
    store(at + SUBQUEUE, ADDRESS);
}

/* ------------------------------------------------------------------------------------------------------ the answer */

static void write_answer(Writer *out, const Message *message, uint64_t sequence)
{
    uint32_t size = (uint32_t)message->packet + EXTENSION_HEADER + SUBQUEUE + ADDRESS;
    put_word(out, word_at(message->fixed, message->layout->arrived));
    put_word(out, 0); /* padding */
    put_word(out, (uint32_t)sequence);
    put_word(out, (uint32_t)(sequence >> 32));
    put_word(out, 1); /* section */
    put_referent(out);
    put_word(out, 1);
    put_word(out, 0); /* stFullPacket */
    put_word(out, size);
    put_word(out, size);
    put_referent(out);
    put_word(out, size);
    put_base(out, message);
    put_user(out, message);
    if (message->has_sender)
        put_security(out, message);
    put_properties(out, message);
    put_extension(out, message);
    put_word(out, 0); /* MQ_OK */
}

/* The answer with a UserHeader; None for a message that is not simple, NULL with an exception set on failure. */
static PyObject *with_names(Message *message, PyObject *user, uint64_t sequence)
{
    if (user == Py_None)
        return Py_NewRef(Py_None);
    if (!PyBytes_Check(user) || PyBytes_GET_SIZE(user) < USER || PyBytes_GET_SIZE(user) > UINT16_MAX) {
        PyErr_SetString(PyExc_TypeError, "names map to the bytes of a UserHeader or to None");
        return NULL;
    }
    const Part *parts = message->parts;
    message->user = (const unsigned char *)PyBytes_AS_STRING(user);
    message->user_size = (uint32_t)PyBytes_GET_SIZE(user);
    uint64_t properties = PROPERTIES + 2 * (uint64_t)label_units(message) + parts[EXTENSION].size + parts[BODY].size;
    uint32_t sender = message->has_sender ? SECURITY + parts[SENDER].size + padding(parts[SENDER].size) : 0;
    message->packet = BASE + message->user_size + sender + properties + padding(properties);
    Writer out = {NULL, 0, message->packet + EXTENSION_HEADER + SUBQUEUE + ADDRESS + ANSWER, FIRST_REFERENT, true};
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)out.room);
    if (result == NULL)
        return NULL;
    out.data = (unsigned char *)PyBytes_AS_STRING(result);
    write_answer(&out, message, sequence);
    if (out.fits)
        _PyBytes_Resize(&result, (Py_ssize_t)out.at);
    else
        Py_SETREF(result, Py_NewRef(Py_None));
    return result;
}

/* A UserHeader and its key. */
typedef struct {
    PyObject *key, *user;
} Known;

/* Look up the UserHeader of a message, unless it is that of the message before. Returns whether it succeeds; otherwise,
   an exception is set. */
static bool look_up(Known *known, const Message *message, PyObject *names)
{
    if (known->key != NULL && is_key_of(known->key, message))
        return true;
    Py_CLEAR(known->user);
    Py_XSETREF(known->key, key_of(message));
    if (known->key != NULL)
        known->user = PyObject_GetItem(names, known->key);
    if (known->user == NULL)
        Py_CLEAR(known->key);
    return known->user != NULL;
}

/* The answer with one message; None if it is not simple or its body is longer than `maximum`, NULL with an exception set
   on failure. */
static PyObject *answer_one(PyObject *stored, const Layout *layout, PyObject *names, Known *known, uint64_t sequence,
                            uint32_t maximum)
{
    Py_buffer record;
    if (PyObject_GetBuffer(stored, &record, PyBUF_SIMPLE) < 0)
        return NULL;
    Message message;
    message.layout = layout;
    PyObject *result = NULL;
    if (!is_simple(&message, &record) || message.parts[BODY].size > maximum)
        result = Py_NewRef(Py_None);
    else if (look_up(known, &message, names))
        result = with_names(&message, known->user, sequence);
    PyBuffer_Release(&record);
    return result;
}

/* Append the answers to a list. Returns whether it succeeds; otherwise, an exception is set. */
static bool answer_all(PyObject *found, PyObject *records, const Layout *layout, PyObject *names, PyObject *identifiers,
                       PyObject *sizes)
{
    Known known = {NULL, NULL};
    Py_ssize_t count = Py_MIN(PyList_GET_SIZE(records), Py_MIN(PyList_GET_SIZE(identifiers), PyList_GET_SIZE(sizes)));
    bool succeeds = true, ends = false;
    for (Py_ssize_t i = 0; succeeds && !ends && i < count; i++) {
        uint64_t sequence = PyLong_AsUnsignedLong(PyList_GET_ITEM(identifiers, i)) & LAST_SEQUENCE;
        unsigned long maximum = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(PyList_GET_ITEM(sizes, i));
        PyObject *one = PyErr_Occurred() ? NULL : answer_one(PyList_GET_ITEM(records, i), layout, names, &known, sequence,
            (uint32_t)maximum);
        ends = one == Py_None;
        succeeds = one != NULL && (ends || PyList_Append(found, one) == 0);
        Py_XDECREF(one);
    }
    Py_XDECREF(known.key);
    Py_XDECREF(known.user);
    return succeeds;
}

static PyObject *answers(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer described;
    PyObject *records, *names, *identifiers, *sizes, *found = NULL;
    if (!PyArg_ParseTuple(arguments, "O!y*OO!O!", &PyList_Type, &records, &described, &names, &PyList_Type, &identifiers,
                          &PyList_Type, &sizes))
        return NULL;
    if (described.len != sizeof(Layout))
        PyErr_SetString(PyExc_ValueError, "a layout is needed");
    else if ((found = PyList_New(0)) != NULL && !answer_all(found, records, described.buf, names, identifiers, sizes))
        Py_CLEAR(found);
    PyBuffer_Release(&described);
    return found;
}

/* ----------------------------------------------------------------------------------------------------- the requests */

/* Offsets in the stubs of requests, which begin with the context handle ([MS-MQRR] 3.1.4.7, 3.1.4.9). */
enum { LOOKUP = 24, TIMEOUT = 40, START_REQUEST = 44, START_SIZE = 48, START = 56 };
enum { ACKNOWLEDGMENT = 20, END_REQUEST = 24, END = 28, RR_ACK = 2 };

/* The stub at a place of a list if it has that size, or NULL. */
static const unsigned char *stub_of(PyObject *stubs, Py_ssize_t at, Py_ssize_t size)
{
    PyObject *stub = PyList_GET_ITEM(stubs, at);
    return PyBytes_Check(stub) && PyBytes_GET_SIZE(stub) == size ? (const unsigned char *)PyBytes_AS_STRING(stub) : NULL;
}

/* Returns whether it succeeds; otherwise, an exception is set. */
static bool append_word(PyObject *words, const unsigned char *stub, size_t at)
{
    PyObject *word = PyLong_FromUnsignedLong(word_at(stub, at));
    bool succeeds = word != NULL && PyList_Append(words, word) == 0;
    Py_XDECREF(word);
    return succeeds;
}

static PyObject *starts(PyObject *module, PyObject *stubs)
{
    (void)module;
    static const unsigned char first_message[TIMEOUT - LOOKUP]; /* no LookupId, no cursor, action RECEIVE (0) */
    if (!PyList_Check(stubs))
        return PyErr_Format(PyExc_TypeError, "a list of stubs is needed");
    PyObject *found = Py_BuildValue("([][])");
    const unsigned char *stub;
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(stubs); i++) {
        if ((stub = stub_of(stubs, i, START)) == NULL || memcmp(stub + LOOKUP, first_message, sizeof first_message))
            break;
        if (!append_word(PyTuple_GET_ITEM(found, 0), stub, START_REQUEST)
            || !append_word(PyTuple_GET_ITEM(found, 1), stub, START_SIZE))
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *acknowledgments(PyObject *module, PyObject *stubs)
{
    (void)module;
    if (!PyList_Check(stubs))
        return PyErr_Format(PyExc_TypeError, "a list of stubs is needed");
    PyObject *found = PyList_New(0);
    const unsigned char *stub;
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(stubs); i++) {
        if ((stub = stub_of(stubs, i, END)) == NULL || word_at(stub, ACKNOWLEDGMENT) != RR_ACK)
            break;
        if (!append_word(found, stub, END_REQUEST))
            Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef functions[] = {
    {"answers", answers, METH_VARARGS,
     "answers(records, layout, names, identifiers, sizes): answers of receives, up to the first one that is not simple"},
    {"starts", starts, METH_O,
     "starts(stubs): (request numbers, maximum body sizes) of R_StartReceive, up to the first stub that does not receive\n"
     "the first message"},
    {"acknowledgments", acknowledgments, METH_O,
     "acknowledgments(stubs): request numbers of R_EndReceive, up to the first stub that is not an acknowledgment"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.protocols.start_receive_stubs", "Simple receives in two phases.", -1,
    functions,
};

PyMODINIT_FUNC PyInit_start_receive_stubs(void)
{
    return PyModule_Create(&definition);
}
