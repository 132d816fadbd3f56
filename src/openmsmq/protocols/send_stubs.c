/* Decodes the stubs of simple rpc_ACSendMessageEx calls ([MS-MQMP] 3.1.5.2) into records of messages. A call is simple
   if it only puts a message into a queue of this machine, or into an outgoing queue.

   Decoding stops at the first stub that is not simple or not valid; the Python code (`conversion.send_buffer`,
   `queueing.sending`) handles that call and its errors. So this may reject a call that Python accepts, never the
   reverse. The contents of the records are declared in `record.fields`, their layout in
   `openmsmq.record.layouts`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "../record/record_writer.h"
#include "../store/column.h"
#include "stub_reader.h"

enum { LARGEST_STUB = 1 << 20, CHARGED = 256, INFINITE = -1 };
enum { SENDERID_NONE, SENDERID_SID };

/* Offsets in a stub: the context handle, then CACTransferBufferV2 with its 53 members. */
enum { HANDLE = 20, MEMBERS = HANDLE + 16, END = MEMBERS + 212 + 12 };

typedef struct { /* the content of a stub that goes into a record */
    Part body, extension, sender;
    Label label;
    const unsigned char *correlation;
    uint32_t tag, body_type, time_to_reach, hash, encryption, sender_type;
    uint8_t priority, delivery;
    bool names_sender, wants_identifier;
} Send;

static uint32_t member(const Reader *reader, size_t index) { return word_at(reader->stub, MEMBERS + 4 * index); }

static uint32_t word_of(Reader *reader, uint32_t pointer, uint32_t otherwise)
{
    return pointer ? read_word(reader) : otherwise;
}

/* Read the array of `count` elements behind a pointer to a pointer: conformant and, if `varying`, also varying. */
static Part array_of(Reader *reader, uint32_t pointer, uint32_t count, uint32_t room, bool varying, uint32_t element)
{
    if (!pointer || !read_word(reader))
        return (Part){NULL, 0};
    bool right = read_word(reader) == room;
    if (varying)
        right = read_word(reader) == 0 && right, right = read_word(reader) == count && count <= room && right;
    if (!right || count > LARGEST_STUB) {
        reader->simple = false;
        return (Part){NULL, 0};
    }
    return (Part){take(reader, (size_t)count * element), count};
}

static void skip_structure(Reader *reader, uint32_t pointer, size_t size)
{
    if (pointer && read_word(reader))
        take(reader, size);
}

static bool is_one_of(uint32_t value, const uint32_t *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (allowed[i] == value)
            return true;
    return false;
}

static bool is_sid(Part part)
{
    return part.size >= 8 && part.data[0] == 1 && part.data[1] <= 15 && part.size == 8u + 4u * part.data[1];
}

/* Read a stub. Returns whether it is simple. Members are numbered as in [MS-MQMP] 2.2.3.2, from pClass on; those that
   servers ignore are skipped. */
static bool read_send(Send *send, const unsigned char *stub, size_t size)
{
    static const uint32_t hashes[] = {0, 0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800D, 0x800E};
    static const uint32_t ciphers[] = {0, 0x6602, 0x6801, 0x660E, 0x660F, 0x6610};
    static const unsigned char no_transaction[MACHINE];
    if (size < END || size > LARGEST_STUB)
        return false;
    Reader in = {stub, END, size, true};
    /* uTransferType and its union, pAdminQueueFormat, pResponseQueueFormat */
    if (word_at(stub, HANDLE) || word_at(stub, HANDLE + 4) || word_at(stub, HANDLE + 8) || word_at(stub, HANDLE + 12))
        return false;
    enum {
        CLASS, MESSAGE_ID, CORRELATION, SENT, ARRIVED, PRIORITY, DELIVERY, ACKNOWLEDGE, AUDITING, TAG, BODY_OF, BODY_COUNT,
        BODY_ROOM, BODY_SIZE, TITLE, TITLE_COUNT, TITLE_SIZE, TO_QUEUE, TO_QUEUE_OUT, TO_LIVE, TO_LIVE_OUT, TRACE,
        SENDER_TYPE, SENDER_OF, SENDER_SIZE, PRIVACY, AUTHENTICATION, AUTHENTICATED, HASH, CIPHER, CERTIFICATE_OF,
        CERTIFICATE_COUNT, CERTIFICATE_SIZE, PROVIDER, PROVIDER_COUNT, PROVIDER_SIZE, PROVIDER_TYPE, PROVIDER_DEFAULT,
        KEY_OF, KEY_COUNT, KEY_SIZE, FLAGS, SIGNATURE_OF, SIGNATURE_COUNT, SIGNATURE_SIZE, SOURCE, UNIT_OF_WORK, EXTENSION_OF,
        EXTENSION_COUNT, EXTENSION_SIZE, CONNECTOR, BODY_TYPE, VERSION, FIRST, LAST, TRANSACTION,
    };
    /* A simple message has no certificate, key, provider, signature, connector or time to live. */
    if (member(&in, CERTIFICATE_OF) || member(&in, CERTIFICATE_COUNT) || member(&in, PROVIDER)
        || member(&in, KEY_OF) || member(&in, KEY_COUNT) || member(&in, SIGNATURE_OF) || member(&in, SIGNATURE_COUNT)
        || member(&in, CONNECTOR) || (member(&in, TO_LIVE) && member(&in, TO_LIVE) != (uint32_t)INFINITE))
        return false;
    uint32_t flags = member(&in, FLAGS), sender_size = flags >> 16;
    if (flags & 0xFF) /* bEncrypted */
        return false;
    uint32_t follows = half_of(&in, member(&in, CLASS));
    skip_structure(&in, member(&in, MESSAGE_ID), IDENTIFIER);
    send->correlation = array_of(&in, member(&in, CORRELATION), IDENTIFIER, IDENTIFIER, true, 1).data;
    word_of(&in, member(&in, SENT), 0);
    word_of(&in, member(&in, ARRIVED), 0);
    uint32_t priority = byte_of(&in, member(&in, PRIORITY), 3), delivery = byte_of(&in, member(&in, DELIVERY), 0);
    follows |= byte_of(&in, member(&in, ACKNOWLEDGE), 0);
    follows |= byte_of(&in, member(&in, AUDITING), 0);
    send->tag = word_of(&in, member(&in, TAG), 0);
    send->body = array_of(&in, member(&in, BODY_OF), member(&in, BODY_COUNT), member(&in, BODY_ROOM), true, 1);
    word_of(&in, member(&in, BODY_SIZE), 0);
    Part title = array_of(&in, member(&in, TITLE), member(&in, TITLE_COUNT), member(&in, TITLE_COUNT), true, 2);
    word_of(&in, member(&in, TITLE_SIZE), 0);
    word_of(&in, member(&in, TO_QUEUE_OUT), 0);
    word_of(&in, member(&in, TO_LIVE_OUT), 0);
    follows |= byte_of(&in, member(&in, TRACE), 0);
    send->sender_type = word_of(&in, member(&in, SENDER_TYPE), 0);
    send->sender = array_of(&in, member(&in, SENDER_OF), sender_size, sender_size, false, 1);
    word_of(&in, member(&in, SENDER_SIZE), 0);
    uint32_t privacy = word_of(&in, member(&in, PRIVACY), 0);
    byte_of(&in, member(&in, AUTHENTICATED), 0);
    send->hash = word_of(&in, member(&in, HASH), 0);
    send->encryption = word_of(&in, member(&in, CIPHER), 0);
    word_of(&in, member(&in, CERTIFICATE_SIZE), 0);
    word_of(&in, member(&in, PROVIDER_SIZE), 0);
    word_of(&in, member(&in, PROVIDER_TYPE), 0);
    word_of(&in, member(&in, KEY_SIZE), 0);
    word_of(&in, member(&in, SIGNATURE_SIZE), 0);
    skip_structure(&in, member(&in, SOURCE), MACHINE);
    const unsigned char *unit = member(&in, UNIT_OF_WORK) ? take(&in, MACHINE) : no_transaction;
    send->extension = array_of(&in, member(&in, EXTENSION_OF), member(&in, EXTENSION_COUNT), member(&in, EXTENSION_COUNT),
                               true, 1);
    word_of(&in, member(&in, EXTENSION_SIZE), 0);
    send->body_type = word_of(&in, member(&in, BODY_TYPE), 0);
    word_of(&in, member(&in, VERSION), 0);
    byte_of(&in, member(&in, FIRST), 0);
    byte_of(&in, member(&in, LAST), 0);
    skip_structure(&in, member(&in, TRANSACTION), IDENTIFIER);
    send->wants_identifier = read_word(&in) != 0;
    if (send->wants_identifier)
        take(&in, IDENTIFIER);
    send->label = (Label){title.data, title.size, 0};
    if (!in.simple || memcmp(unit, no_transaction, sizeof no_transaction) || follows || privacy || priority > 7
        || delivery > 1 || send->body_type > 0xFFFF || !is_one_of(send->hash, hashes, sizeof hashes / 4)
        || !is_one_of(send->encryption, ciphers, sizeof ciphers / 4) || !measure_label(&send->label))
        return false;
    send->priority = (uint8_t)priority;
    send->delivery = (uint8_t)delivery;
    send->time_to_reach = member(&in, TO_QUEUE) ? member(&in, TO_QUEUE) : (uint32_t)INFINITE;
    /* The sender: from the message or, if that does not name one, the caller. */
    send->names_sender = send->sender.data != NULL;
    if (!member(&in, SENDER_TYPE)) {
        send->sender_type = SENDERID_SID;
        send->names_sender = false;
        return !sender_size;
    }
    if (send->sender_type == SENDERID_NONE)
        return true;
    return send->sender_type == SENDERID_SID && (!send->names_sender || is_sid(send->sender));
}

/* ---------------------------------------------------------------------------------------------------------- records */

typedef struct {
    const unsigned char *template, *sender, *destination;
    uint32_t sender_size, destination_size, destination_length;
    uint32_t longest; /* maximum time to reach the queue, in seconds; INFINITE for a queue of this machine */
} Form;

static bool read_form(Form *form, PyObject *given, const Layout *layout)
{
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 5)
        return false;
    PyObject *template = PyTuple_GET_ITEM(given, 0), *sender = PyTuple_GET_ITEM(given, 1);
    PyObject *destination = PyTuple_GET_ITEM(given, 2), *length = PyTuple_GET_ITEM(given, 3);
    PyObject *longest = PyTuple_GET_ITEM(given, 4);
    if (!PyBytes_CheckExact(template) || !PyBytes_CheckExact(sender) || !PyBytes_CheckExact(destination)
        || !PyLong_CheckExact(length) || !PyLong_CheckExact(longest) || PyBytes_GET_SIZE(template) != layout->size)
        return false;
    *form = (Form){
        (unsigned char *)PyBytes_AS_STRING(template), (unsigned char *)PyBytes_AS_STRING(sender),
        (unsigned char *)PyBytes_AS_STRING(destination), (uint32_t)PyBytes_GET_SIZE(sender),
        (uint32_t)PyBytes_GET_SIZE(destination), (uint32_t)PyLong_AsUnsignedLong(length),
        (uint32_t)PyLong_AsUnsignedLong(longest),
    };
    return !PyErr_Occurred();
}

static void choose_sender(Send *send, const Form *form)
{
    bool by_type = send->sender_type == SENDERID_SID;
    if (by_type && send->names_sender)
        return;
    send->sender = (Part){form->sender, by_type ? form->sender_size : 0};
    if (!send->sender.size)
        send->sender_type = SENDERID_NONE;
}

static size_t record_size(const Send *send, const Form *form, const Layout *layout)
{
    return (size_t)layout->size + send->body.size + send->extension.size + send->sender.size + send->label.size
        + form->destination_size;
}

static void write_record(unsigned char *record, const Send *send, const Form *form, const Layout *layout,
                         uint32_t sequence, uint32_t seconds, uint16_t milliseconds)
{
    uint32_t lengths = layout->lengths;
    memcpy(record, form->template, layout->size);
    record[layout->priority] = send->priority;
    record[layout->delivery] = send->delivery;
    memcpy(record + layout->milliseconds, &milliseconds, 2);
    write_word(record, layout->tag, send->tag);
    write_word(record, layout->body_type, send->body_type);
    write_word(record, layout->time_to_reach, send->time_to_reach);
    write_word(record, layout->sent, seconds);
    write_word(record, layout->arrived, seconds);
    write_word(record, layout->hash, send->hash);
    write_word(record, layout->encryption, send->encryption);
    write_word(record, layout->sender_type, send->sender_type);
    write_word(record, layout->identifier + MACHINE, sequence);
    if (send->correlation != NULL)
        memcpy(record + layout->correlation, send->correlation, IDENTIFIER);
    write_word(record, lengths + 4 * BODY, send->body.size);
    write_word(record, lengths + 4 * EXTENSION, send->extension.size);
    write_word(record, lengths + 4 * SENDER, send->sender.size);
    write_word(record, lengths + 4 * LABEL, send->label.size);
    write_word(record, lengths + 4 * DESTINATION, form->destination_size);
    unsigned char *at = record + layout->size;
    at = write_part(at, send->body.data, send->body.size);
    at = write_part(at, send->extension.data, send->extension.size);
    at = write_part(at, send->sender.data, send->sender.size);
    at = write_label(at, &send->label);
    write_part(at, form->destination, form->destination_size);
}

/* The answer: pMessageID if the client requested it, and MQ_OK. */
static PyObject *answer_of(const Send *send, const unsigned char *identifier)
{
    PyObject *answer = PyBytes_FromStringAndSize(NULL, send->wants_identifier ? 8 + IDENTIFIER : 8);
    if (answer == NULL)
        return NULL;
    unsigned char *data = (unsigned char *)PyBytes_AS_STRING(answer);
    memset(data, 0, PyBytes_GET_SIZE(answer));
    if (send->wants_identifier) {
        write_word(data, 0, 0x20000); /* the first referent */
        memcpy(data + 4, identifier, IDENTIFIER);
    }
    return answer;
}

/* Read the simple stubs at the beginning of the list, all of them express or all recoverable (see `records` below). */
static Py_ssize_t read_sends(Send *sends, Form *forms, PyObject *stubs, PyObject *given, const Layout *layout, size_t *total)
{
    Py_ssize_t count = PyList_GET_SIZE(stubs), some = 0;
    *total = 0;
    for (; some < count; some++) {
        PyObject *stub = PyList_GET_ITEM(stubs, some);
        if (!PyBytes_CheckExact(stub) || !read_form(&forms[some], PyList_GET_ITEM(given, some), layout)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "stubs are bytes, forms tuples of template, sender, destination, its length and the longest time to reach it");
            return -1;
        }
        Send *send = &sends[some];
        if (!read_send(send, (unsigned char *)PyBytes_AS_STRING(stub), PyBytes_GET_SIZE(stub))
            || send->delivery != sends->delivery)
            break;
        choose_sender(send, &forms[some]);
        if (send->time_to_reach > forms[some].longest)
            send->time_to_reach = forms[some].longest;
        *total += record_size(send, &forms[some], layout);
    }
    return some;
}

static PyObject *records(PyObject *module, PyObject *arguments)
{
    PyObject *stubs, *given, *result = NULL;
    Py_buffer described;
    unsigned long long sequence;
    unsigned int seconds;
    unsigned short milliseconds;
    if (!PyArg_ParseTuple(arguments, "O!O!y*KIH", &PyList_Type, &stubs, &PyList_Type, &given, &described, &sequence,
                          &seconds, &milliseconds))
        return NULL;
    const Layout *layout = described.buf;
    Py_ssize_t room = PyList_GET_SIZE(stubs), count = -1;
    size_t total = 0;
    Send *sends = PyMem_New(Send, room + 1);
    Form *forms = PyMem_New(Form, room + 1);
    if (sends == NULL || forms == NULL)
        PyErr_NoMemory();
    else if (described.len != sizeof(Layout) || PyList_GET_SIZE(given) != room)
        PyErr_SetString(PyExc_ValueError, "as many forms as stubs, and a layout, are needed");
    else
        count = read_sends(sends, forms, stubs, given, layout, &total);
    PyObject *made = NULL, *bounds = NULL, *words = NULL, *keys = NULL, *sizes = NULL, *charged = NULL, *answers = NULL;
    int64_t *bound;
    uint64_t *word, *key;
    uint32_t *stored, *counted;
    if (count < 0 || !(made = PyBytes_FromStringAndSize(NULL, total))
        || !(bounds = new_column(one_i64, count + 1, &bound)) || !(words = new_column(one_u64, count, &word))
        || !(keys = new_column(one_u64, count, &key)) || !(sizes = new_column(one_u32, count, &stored))
        || !(charged = new_column(one_u32, count, &counted)) || !(answers = PyList_New(count)))
        goto end;
    unsigned char *record = (unsigned char *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < count; i++, sequence++) {
        const Send *send = &sends[i];
        const Form *form = &forms[i];
        size_t size = record_size(send, form, layout);
        write_record(record, send, form, layout, (uint32_t)sequence, seconds, milliseconds);
        PyObject *answer = answer_of(send, record + layout->identifier);
        if (answer == NULL)
            goto end;
        PyList_SET_ITEM(answers, i, answer);
        bound[i + 1] = bound[i] + (int64_t)size;
        word[i] = (uint64_t)(7 - send->priority) << 56;
        if (form->longest != (uint32_t)INFINITE) /* it expires in transit, see `TransitQueue.deadline_of` */
            word[i] |= ((uint64_t)seconds + send->time_to_reach) * 1000 + milliseconds;
        key[i] = sequence;
        stored[i] = (uint32_t)size;
        counted[i] = CHARGED + 2 * (send->label.units + form->destination_length) + send->body.size + send->extension.size
            + send->sender.size;
        record += size;
    }
    result = PyTuple_Pack(7, count && sends->delivery ? Py_True : Py_False, made, bounds, keys, words, sizes, charged);
    if (result != NULL) {
        PyObject *both = PyTuple_Pack(2, result, answers);
        Py_DECREF(result);
        result = both;
    }
end:
    Py_XDECREF(made);
    Py_XDECREF(bounds);
    Py_XDECREF(words);
    Py_XDECREF(keys);
    Py_XDECREF(sizes);
    Py_XDECREF(charged);
    Py_XDECREF(answers);
    PyMem_Free(sends);
    PyMem_Free(forms);
    PyBuffer_Release(&described);
    return result;
}

static PyMethodDef functions[] = {
    {"records", records, METH_VARARGS,
     "records(stubs, forms, layout, sequence, seconds, milliseconds): for the simple stubs at the beginning, whether "
     "they are recoverable, records, bounds, keys, words, sizes and charged sizes; and their answers"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.protocols.send_stubs", "Records of simple sends.", -1, functions,
};

PyMODINIT_FUNC PyInit_send_stubs(void)
{
    return prepare_columns() < 0 ? NULL : PyModule_Create(&definition);
}
