/* Encodes the answer to a simple rpc_ACReceiveMessageEx ([MS-MQMP] 3.1.5.3) from the stub of the call and the record of
   the message. A call is simple if a receive without cursor and transaction, whose buffers are large enough, of a message whose
   receipt has no consequences.

   For any other call, and for an invalid one, there is no answer: the Python code (`conversion.receive_buffer`,
   `queueing.reading`) handles the call and its errors. The contents of a record are declared in
   `record.fields`, its layout in `openmsmq.record.layouts`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "stub_reader.h"
#include "../record/record_reader.h"
#include "stub_writer.h"

enum { PACKET_VERSION = 0x10, LONGEST_NAME = 1024, LONGEST_KEPT = 8192 };

/* CACTransferBufferV2 ([MS-MQMP] 2.2.3.2) as words: the Receive arm, and from word 18 on the members from pClass on. */
enum { TRANSFER_TYPE, ARM, TIMEOUT, ACTION, ASYNCHRONOUS, CURSOR, FIRST_MEMBER = 18, WORDS = 74, AT = 4 };
enum { CACTB_RECEIVE = 1, ACTION_RECEIVE = 0 };
enum { SENDER_WORD = FIRST_MEMBER + 41 }; /* bEncrypted, bAuthenticated, uSenderIDLen */

typedef enum {
    INLINE, /* no pointer: returned unchanged */
    BYTE, HALF, WORD, /* behind one pointer */
    UNIT,             /* of work, behind one pointer: returned unchanged */
    STRUCTURE,        /* behind two pointers, `size` bytes */
    COUNTED,          /* the same, but a varying array of that size */
    VARYING, CONFORMANT, /* bytes behind two pointers */
    TITLE, NAME, PROVIDER_NAME, /* texts behind two pointers: one varying array, two conformant */
} Kind;

typedef struct {
    Kind kind;
    uint8_t size; /* bytes of a structure; for arrays the index of the word with the size */
    uint8_t part; /* of the record */
} Member;

#define M(index) (FIRST_MEMBER + (index))
static const Member members[WORDS] = {
    [7] = {NAME, 6, RESPONSE}, [8] = {WORD, 0, 0}, [10] = {NAME, 9, ADMINISTRATION}, [11] = {WORD, 0, 0},
    [13] = {NAME, 12, DESTINATION}, [14] = {WORD, 0, 0}, [16] = {NAME, 15, STATUS}, [17] = {WORD, 0, 0},
    [M(0)] = {HALF, 0, 0},                            /* pClass */
    [M(1)] = {STRUCTURE, IDENTIFIER, 0},              /* ppMessageID */
    [M(2)] = {COUNTED, IDENTIFIER, 0},                /* ppCorrelationID */
    [M(3)] = {WORD, 0, 0}, [M(4)] = {WORD, 0, 0},     /* pSentTime, pArrivedTime */
    [M(5)] = {BYTE, 0, 0}, [M(6)] = {BYTE, 0, 0},     /* pPriority, pDelivery */
    [M(7)] = {BYTE, 0, 0}, [M(8)] = {BYTE, 0, 0},     /* pAcknowledge, pAuditing */
    [M(9)] = {WORD, 0, 0},                            /* pApplicationTag */
    [M(10)] = {VARYING, M(11), BODY}, [M(13)] = {WORD, 0, 0},
    [M(14)] = {TITLE, M(15), LABEL}, [M(16)] = {WORD, 0, 0},
    [M(18)] = {WORD, 0, 0}, [M(20)] = {WORD, 0, 0},   /* pulRelativeTimeToQueue, pulRelativeTimeToLive */
    [M(21)] = {BYTE, 0, 0}, [M(22)] = {WORD, 0, 0},   /* pTrace, pulSenderIDType */
    [M(23)] = {CONFORMANT, SENDER_WORD, SENDER}, [M(24)] = {WORD, 0, 0},
    [M(25)] = {WORD, 0, 0}, [M(27)] = {BYTE, 0, 0},   /* pulPrivLevel, pAuthenticated */
    [M(28)] = {WORD, 0, 0}, [M(29)] = {WORD, 0, 0},   /* pulHashAlg, pulEncryptAlg */
    [M(30)] = {CONFORMANT, M(31), CERTIFICATE}, [M(32)] = {WORD, 0, 0},
    [M(33)] = {PROVIDER_NAME, M(34), PROVIDER}, [M(35)] = {WORD, 0, 0}, [M(36)] = {WORD, 0, 0},
    [M(38)] = {CONFORMANT, M(39), KEY}, [M(40)] = {WORD, 0, 0},
    [M(42)] = {CONFORMANT, M(43), SIGNATURE}, [M(44)] = {WORD, 0, 0},
    [M(45)] = {STRUCTURE, GUID, 0}, [M(46)] = {UNIT, GUID, 0}, /* ppSrcQMID, pUow */
    [M(47)] = {VARYING, M(48), EXTENSION}, [M(49)] = {WORD, 0, 0},
    [M(50)] = {STRUCTURE, GUID, 0},                   /* ppConnectorType */
    [M(51)] = {WORD, 0, 0}, [M(52)] = {WORD, 0, 0},   /* pulBodyType, pulVersion */
    [M(53)] = {BYTE, 0, 0}, [M(54)] = {BYTE, 0, 0},   /* pbFirstInXact, pbLastInXact */
    [M(55)] = {STRUCTURE, IDENTIFIER, 0},             /* ppXactID */
};

typedef struct {
    uint32_t words[WORDS];
    uint32_t values[WORDS];                 /* of WORD, HALF and BYTE members: first the client's, then ours */
    bool has_buffer[WORDS];                 /* of arrays: the client gave one */
    const unsigned char *structures[WORDS]; /* of STRUCTURE and COUNTED members: the data to write */
} Buffer;

/* ----------------------------------------------------------------------------------------------------- the request */

static uint32_t size_of(const uint32_t *words, const Member *member)
{
    return member->size == SENDER_WORD ? words[SENDER_WORD] >> 16 : words[member->size];
}

/* Read an array behind an inner pointer. Returns whether it is present. */
static bool read_array(Reader *in, uint32_t room, uint32_t count, bool varying, size_t element)
{
    if (!read_word(in))
        return false;
    bool right = read_word(in) == room;
    if (varying) {
        right = read_word(in) == 0 && right;
        right = read_word(in) == count && count <= room && right;
    }
    if (!right || count > in->size)
        in->simple = false;
    else
        take(in, count * element);
    return true;
}

/* Read the request. Returns whether it is simple. */
static bool read_buffer(Buffer *buffer, const unsigned char *stub, size_t size)
{
    static const unsigned char no_transaction[GUID];
    uint32_t *words = buffer->words;
    if (size < AT + 4 * WORDS)
        return false;
    memcpy(words, stub + AT, 4 * WORDS);
    if (words[TRANSFER_TYPE] != CACTB_RECEIVE || words[ARM] != CACTB_RECEIVE || words[ACTION] != ACTION_RECEIVE
        || words[CURSOR])
        return false;
    Reader in = {stub, AT + 4 * WORDS, size, true};
    for (int w = 0; w < WORDS && in.simple; w++) {
        const Member *member = &members[w];
        bool array = member->kind >= VARYING;
        if (member->kind == NAME && words[member->size] > LONGEST_NAME)
            return false;
        if (!words[w]) { /* no pointer or NULL; a size without a buffer is an error in some cases */
            if (array && size_of(words, member) && (member->kind == NAME || member->kind == TITLE || member->kind == VARYING))
                return false;
            continue;
        }
        uint32_t count = array ? size_of(words, member) : 0;
        switch (member->kind) {
        case INLINE:
            break;
        case BYTE:
            buffer->values[w] = byte_of(&in, 1, 0);
            break;
        case HALF:
            buffer->values[w] = half_of(&in, 1);
            break;
        case WORD:
            buffer->values[w] = read_word(&in);
            break;
        case UNIT: {
            const unsigned char *unit = take(&in, GUID);
            if (unit == NULL || memcmp(unit, no_transaction, GUID))
                return false;
            break;
        }
        case STRUCTURE:
            if (read_word(&in))
                take(&in, member->size);
            break;
        case COUNTED:
            read_array(&in, member->size, member->size, true, 1);
            break;
        case VARYING:
            buffer->has_buffer[w] = read_array(&in, words[w == M(10) ? M(12) : member->size], count, true, 1);
            break;
        case CONFORMANT:
            buffer->has_buffer[w] = read_array(&in, count, count, false, 1);
            break;
        case TITLE:
            buffer->has_buffer[w] = read_array(&in, count, count, true, 2);
            break;
        case NAME:
        case PROVIDER_NAME:
            buffer->has_buffer[w] = read_array(&in, count, count, false, 2);
            break;
        }
    }
    return in.simple;
}

/* The last request and, if `has_answer`, the form of its answer. A client repeats its request, all clients of one
   program send the same request, and the messages of a queue are alike: so an answer often differs from the last one in
   a few places only. The form does not include the body, because that may be large. */
static struct {
    unsigned char stub[LONGEST_KEPT];
    size_t size;
    Buffer buffer;
    bool has_answer;
    unsigned char before[LONGEST_KEPT], behind[LONGEST_KEPT]; /* parts of the answer before and after the body */
    size_t before_size, body_room, behind_size;
    struct {
        uint8_t word, size; /* size in bytes, if it is not an array */
        uint32_t at;        /* in the answer */
    } places[WORDS];
    int count;
    unsigned char texts[LONGEST_KEPT]; /* ASCII, end to end */
    size_t texts_size;
    uint32_t text_sizes[PARTS - LABEL];
} kept;

/* Read the request into `kept`. Returns whether it is simple. */
static bool read_again(const unsigned char *stub, size_t size)
{
    if (size > AT && size == kept.size && !memcmp(stub + AT, kept.stub + AT, size - AT))
        return true;
    kept.size = 0;
    kept.has_answer = false;
    memset(&kept.buffer, 0, sizeof kept.buffer);
    if (!read_buffer(&kept.buffer, stub, size))
        return false;
    if (size <= LONGEST_KEPT) {
        memcpy(kept.stub, stub, size);
        kept.size = size;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------ the record */

static uint32_t remaining(uint32_t seconds, uint32_t sent, uint32_t now)
{
    uint64_t end = (uint64_t)sent + seconds;
    if (seconds == INFINITE || end > (uint64_t)now + INFINITE) /* the sender's clock may be ahead */
        return INFINITE;
    return end > now ? (uint32_t)(end - now) : 0;
}

/* Set the values of the members that are in the fixed part of a record. */
static void read_record(Buffer *buffer, const unsigned char *record, const Layout *layout, uint32_t now)
{
    uint32_t *values = buffer->values;
    uint32_t sent = word_at(record, layout->sent);
    values[M(0)] = record[layout->message_class] | record[layout->message_class + 1] << 8;
    values[M(3)] = sent;
    values[M(4)] = word_at(record, layout->arrived);
    values[M(5)] = record[layout->priority];
    values[M(6)] = record[layout->delivery];
    values[M(7)] = 0;
    values[M(8)] = record[layout->journaling];
    values[M(9)] = word_at(record, layout->tag);
    values[M(18)] = remaining(word_at(record, layout->time_to_reach), sent, now);
    values[M(20)] = remaining(word_at(record, layout->time_to_be_received), sent, now);
    values[M(21)] = record[layout->tracing];
    values[M(22)] = word_at(record, layout->sender_type);
    values[M(25)] = word_at(record, layout->privacy);
    values[M(27)] = record[layout->authentication];
    values[M(28)] = word_at(record, layout->hash);
    values[M(29)] = word_at(record, layout->encryption);
    values[M(36)] = word_at(record, layout->provider_type);
    values[M(51)] = word_at(record, layout->body_type);
    values[M(52)] = PACKET_VERSION;
    values[M(53)] = values[M(54)] = 0;
    buffer->structures[M(1)] = record + layout->identifier;
    buffer->structures[M(2)] = record + layout->correlation;
    buffer->structures[M(45)] = record + layout->machine;
    buffer->structures[M(50)] = record + layout->connector;
    buffer->structures[M(55)] = record + layout->transaction;
}

/* The word that is the pointer to the length of an array. */
static int length_word(int w)
{
    const Member *member = &members[w];
    return member->kind == NAME || member->part == SENDER ? w + 1 : w + (member->part == BODY ? 3 : 2);
}

/* Whether everything fits into the client's buffers; sets the words with the lengths. */
static bool measure(Buffer *buffer, const Part *parts)
{
    uint32_t *words = buffer->words, *values = buffer->values;
    for (int w = 0; w < WORDS; w++) {
        const Member *member = &members[w];
        if (member->kind < VARYING)
            continue;
        const Part *part = &parts[member->part];
        int prop = length_word(w);
        uint32_t size = size_of(words, member), length = part->size;
        if (member->kind >= TITLE) {
            length = part->units || member->kind == TITLE ? part->units + 1 : 0;
            if (member->kind != PROVIDER_NAME && words[prop] && values[prop] < size)
                size = values[prop];
        }
        if (buffer->has_buffer[w]) {
            if (length > size || (member->kind == PROVIDER_NAME && !size))
                return false;
            if (member->kind == TITLE)
                words[member->size] = length;
            else if (member->kind == NAME) {
                words[member->size] = length;
                if (!length) /* returned as NULL */
                    words[w] = 0;
            }
        }
        values[prop] = length;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------ the answer */

/* Returns the offset of the member in the answer; 0 if it is not present. */
static size_t put_member(Writer *out, const Buffer *buffer, const Part *parts, int w)
{
    static const unsigned char no_transaction[GUID];
    const Member *member = &members[w];
    const Part *part = &parts[member->part];
    uint32_t size = member->kind >= VARYING ? size_of(buffer->words, member) : member->size;
    unsigned char *at;
    switch (member->kind) {
    case INLINE:
        return 0;
    case BYTE:
        at = place(out, 1);
        if (at != NULL)
            *at = (unsigned char)buffer->values[w];
        return out->at - 1;
    case HALF:
        at = place_aligned(out, 2, 2);
        if (at != NULL)
            at[0] = (unsigned char)buffer->values[w], at[1] = (unsigned char)(buffer->values[w] >> 8);
        return out->at - 2;
    case WORD:
        put_word(out, buffer->values[w]);
        return out->at - 4;
    case UNIT:
        put_bytes(out, no_transaction, GUID, GUID);
        return 0;
    default:
        break;
    }
    if (member->kind >= VARYING && !buffer->has_buffer[w]) {
        put_word(out, 0);
        return 0;
    }
    put_referent(out);
    if (member->kind != STRUCTURE)
        put_word(out, w == M(10) ? buffer->words[M(12)] : size);
    if (member->kind == COUNTED || member->kind == VARYING || member->kind == TITLE) {
        put_word(out, 0);
        put_word(out, size);
    }
    if (member->kind == STRUCTURE || member->kind == COUNTED)
        put_bytes(out, buffer->structures[w], size, size);
    else if (member->kind < TITLE)
        put_bytes(out, part->data, part->size, size);
    else
        put_text(out, part, size);
    return out->at - (member->kind < TITLE ? size : 2 * size);
}

static void write_answer(Writer *out, const Buffer *buffer, const Part *parts, size_t *places)
{
    unsigned char *words = place(out, 4 * WORDS);
    if (words == NULL)
        return;
    for (int w = 0; w < WORDS; w++) {
        uint32_t word = buffer->words[w];
        if (members[w].kind != INLINE && word) {
            word = out->referent;
            out->referent += 4;
        }
        memcpy(words + 4 * w, &word, 4);
    }
    for (int w = 0; w < WORDS; w++)
        places[w] = buffer->words[w] ? put_member(out, buffer, parts, w) : 0;
    put_word(out, 0); /* MQ_OK */
}

/* ------------------------------------------------------------------------------------- answers that are like the last */

/* Keep the form of an answer to the request in `kept` if it is small. */
static void keep_answer(const Writer *out, const Buffer *buffer, const Part *parts, const size_t *places)
{
    const int body = M(10);
    size_t room = places[body] ? buffer->words[M(11)] : 0, before = places[body] ? places[body] : out->at;
    size_t behind = out->at - before - room;
    const Part *last = &parts[PARTS - 1];
    kept.texts_size = (size_t)(last->data + last->size - parts[LABEL].data);
    kept.has_answer = kept.size && before <= LONGEST_KEPT && behind <= LONGEST_KEPT && kept.texts_size <= LONGEST_KEPT;
    for (int part = LABEL; part < PARTS; part++)
        kept.has_answer = kept.has_answer && parts[part].units == parts[part].size; /* ASCII */
    if (!kept.has_answer)
        return;
    memcpy(kept.before, out->data, before);
    memcpy(kept.behind, out->data + before + room, behind);
    memcpy(kept.texts, parts[LABEL].data, kept.texts_size);
    kept.before_size = before, kept.body_room = room, kept.behind_size = behind;
    for (int part = LABEL; part < PARTS; part++)
        kept.text_sizes[part - LABEL] = parts[part].size;
    bool is_of_text[WORDS] = {false}; /* lengths that are constant */
    for (int w = 0; w < WORDS; w++)
        if (members[w].kind >= TITLE)
            is_of_text[length_word(w)] = true;
    kept.count = 0;
    for (int w = 0; w < WORDS; w++) {
        static const uint8_t sizes[] = {[BYTE] = 1, [HALF] = 2, [WORD] = 4};
        Kind kind = members[w].kind;
        if (places[w] && !is_of_text[w]) {
            kept.places[kept.count].word = (uint8_t)w;
            kept.places[kept.count].size = kind <= WORD ? sizes[kind] : members[w].size;
            kept.places[kept.count++].at = (uint32_t)places[w];
        }
    }
}

/* Whether the answer has the kept form: texts are ASCII and have the same lengths, and bytes fit into their buffers.
   Sets the words with the lengths. */
static bool is_alike(Buffer *buffer, const Part *parts)
{
    static const uint8_t arrays[] = {M(10), M(23), M(30), M(38), M(42), M(47)};
    if (!kept.has_answer)
        return false;
    for (int part = LABEL; part < PARTS; part++)
        if (parts[part].size != kept.text_sizes[part - LABEL] || parts[part].units != parts[part].size)
            return false;
    for (size_t i = 0; i < sizeof arrays; i++) {
        int w = arrays[i];
        uint32_t length = parts[members[w].part].size;
        if (kept.buffer.has_buffer[w] && length > size_of(kept.buffer.words, &members[w]))
            return false;
        buffer->values[length_word(w)] = length;
    }
    return true;
}

static void fill_answer(unsigned char *answer, const Buffer *buffer, const Part *parts)
{
    bool has_other_texts = memcmp(parts[LABEL].data, kept.texts, kept.texts_size);
    memcpy(answer, kept.before, kept.before_size);
    memcpy(answer + kept.before_size + kept.body_room, kept.behind, kept.behind_size);
    for (int i = 0; i < kept.count; i++) {
        int w = kept.places[i].word;
        const Member *member = &members[w];
        const Part *part = &parts[member->part];
        unsigned char *at = answer + kept.places[i].at;
        switch (member->kind) {
        case BYTE:
        case HALF:
        case WORD:
            memcpy(at, &buffer->values[w], kept.places[i].size);
            break;
        case STRUCTURE:
        case COUNTED:
            memcpy(at, buffer->structures[w], kept.places[i].size);
            break;
        case VARYING:
        case CONFORMANT:
            memcpy(at, part->data, part->size);
            memset(at + part->size, 0, size_of(kept.buffer.words, member) - part->size);
            break;
        default:
            for (uint32_t unit = 0; has_other_texts && unit < part->size; unit++)
                at[2 * unit] = part->data[unit];
        }
    }
}

/* An answer that has another form than the last one. */
static PyObject *new_answer(const Part *parts, const unsigned char *record, const Layout *layout, uint32_t now, size_t size)
{
    Buffer buffer = kept.buffer;
    size_t places[WORDS];
    read_record(&buffer, record, layout, now);
    if (!measure(&buffer, parts))
        Py_RETURN_NONE;
    /* Nothing is larger than in the request, except structures that the client left out. */
    Writer out = {NULL, 0, size + 1024, FIRST_REFERENT, true};
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)out.room);
    if (made == NULL)
        return NULL;
    out.data = (unsigned char *)PyBytes_AS_STRING(made);
    write_answer(&out, &buffer, parts, places);
    if (!out.fits) {
        Py_DECREF(made);
        Py_RETURN_NONE;
    }
    keep_answer(&out, &buffer, parts, places);
    _PyBytes_Resize(&made, (Py_ssize_t)out.at);
    return made;
}

/* The answer to one call; None if the call is not simple, NULL with an exception set on failure. */
static PyObject *answer_one(PyObject *stub, PyObject *record, const Layout *layout, uint32_t now)
{
    if (!PyBytes_Check(stub) || !PyBytes_Check(record))
        return PyErr_Format(PyExc_TypeError, "stubs and records are bytes");
    Part parts[PARTS];
    unsigned char room[LONGEST_FIXED];
    const unsigned char *fixed = NULL, *data = (unsigned char *)PyBytes_AS_STRING(record);
    size_t size = (size_t)PyBytes_GET_SIZE(stub);
    if (read_again((unsigned char *)PyBytes_AS_STRING(stub), size))
        fixed = split_record(parts, data, (size_t)PyBytes_GET_SIZE(record), layout, room);
    if (fixed == NULL)
        Py_RETURN_NONE;
    Buffer buffer;
    if (!is_alike(&buffer, parts))
        return new_answer(parts, fixed, layout, now, size);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(kept.before_size + kept.body_room + kept.behind_size));
    if (made == NULL)
        return NULL;
    read_record(&buffer, fixed, layout, now);
    fill_answer((unsigned char *)PyBytes_AS_STRING(made), &buffer, parts);
    return made;
}

static PyObject *answers(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *stubs, *records;
    Py_buffer described;
    unsigned int now;
    if (!PyArg_ParseTuple(arguments, "O!O!y*I", &PyList_Type, &stubs, &PyList_Type, &records, &described, &now))
        return NULL;
    PyObject *found = NULL;
    if (described.len != sizeof(Layout))
        PyErr_SetString(PyExc_ValueError, "a layout is needed");
    else
        found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(stubs) && i < PyList_GET_SIZE(records); i++) {
        PyObject *one = answer_one(PyList_GET_ITEM(stubs, i), PyList_GET_ITEM(records, i), described.buf, now);
        bool ends = one == Py_None;
        if (one == NULL || (!ends && PyList_Append(found, one) < 0))
            Py_CLEAR(found);
        Py_XDECREF(one);
        if (ends)
            break;
    }
    PyBuffer_Release(&described);
    return found;
}

static PyMethodDef functions[] = {
    {"answers", answers, METH_VARARGS,
     "answers(stubs, records, layout, seconds): answers of receives, up to the first one that is not simple"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.protocols.receive_stubs", "Answers of simple receives.", -1, functions,
};

PyMODINIT_FUNC PyInit_receive_stubs(void)
{
    return PyModule_Create(&definition);
}
