/* Requests that are served in batches, from the bytes received on a connection to the bytes sent.

   A `Source` is a connection on which only requests of one fragment without a verifier are expected. A `Poller` reads the
   sockets of many sources and creates `Request` objects, as long as these are for operations that are served in batches.
   `answer` queues their replies, which `flush` sends. All other data is processed by `msrpc.rpc.server` and
   `msrpc.rpc.server_connection`, which create a `Call` for any other request. A request is in the pending calls of its
   connection until the reply, so that both code paths know all pending calls. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE /* POLLRDHUP */
#include <Python.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "whole_pdu_headers.h"

#ifdef WHOLE_PDU_HEADERS
#define IS_BUILT

enum { HANDLE_SIZE = 20, MOST_CONTEXTS = 16, MOST_OPERATIONS = 64, MOST_PIECES = 512 /* maximum buffers in one system call */,
       MOST_EVENTS = 64 };

typedef struct {
    uint16_t identifier;
    PyObject *interface;
    uint64_t operations; /* bit mask of the operations served in batches */
} Context;

typedef struct {
    Header header;
    PyObject *stub;
} Answer;

typedef struct {
    PyObject_HEAD
    PyObject *owner, *transport, *pending, *output, *ready, *caller, *handles, *entries, *holder;
    Context contexts[MOST_CONTEXTS];
    int context_count, descriptor;
    char is_open;
    Py_ssize_t most_bytes, most_pending, most_reply;
    double heard, incomplete_since;
    PyObject *handle; /* the context handle that was looked up last, because it keeps its hash; NULL before the first */
    char *kept; /* received part of an incomplete request */
    Py_ssize_t kept_size;
    Answer *answers;
    Py_ssize_t answer_count, answer_room;
} Source;

typedef struct {
    PyObject_HEAD
    Source *source;
    PyObject *interface, *stub;
    uint32_t call_id;
    uint16_t context_id, opnum;
} Request;

static PyTypeObject source_type, request_type;
static PyObject *name_is_closing, *name_buffered, *name_respond, *name_reply, *name_over, *name_cancelled,
    *name_connection, *name_descriptor, *name_interface, *name_opnum, *name_stub, *name_handles, *name_find;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static Request *made(Source *source, const Context *context, const Header *header, const char *stub)
{
    Request *request = PyObject_New(Request, &request_type);
    if (request == NULL)
        return NULL;
    request->source = (Source *)Py_NewRef(source);
    request->interface = Py_NewRef(context->interface);
    request->call_id = header->call_id;
    request->context_id = header->context_id;
    request->opnum = header->opnum;
    request->stub = PyBytes_FromStringAndSize(stub, header->length - (Py_ssize_t)sizeof *header);
    if (request->stub == NULL)
        Py_CLEAR(request);
    return request;
}

static void request_dealloc(Request *self)
{
    Py_XDECREF(self->source);
    Py_XDECREF(self->interface);
    Py_XDECREF(self->stub);
    PyObject_Free(self);
}

static PyObject *request_caller(Request *self, void *unused)
{
    (void)unused;
    return Py_NewRef(self->source->caller);
}

static PyObject *request_handles(Request *self, void *unused)
{
    (void)unused;
    return Py_NewRef(self->source->handles);
}

static PyObject *request_owner(Request *self, void *unused)
{
    (void)unused;
    return Py_NewRef(self->source->owner);
}

static PyMemberDef request_members[] = {
    {"interface", T_OBJECT, offsetof(Request, interface), READONLY, NULL},
    {"stub", T_OBJECT, offsetof(Request, stub), READONLY, NULL},
    {"call_id", T_UINT, offsetof(Request, call_id), READONLY, NULL},
    {"context_id", T_USHORT, offsetof(Request, context_id), READONLY, NULL},
    {"opnum", T_USHORT, offsetof(Request, opnum), READONLY, NULL},
    {NULL},
};

static PyGetSetDef request_getters[] = {
    {"caller", (getter)request_caller, NULL, NULL, NULL},
    {"handles", (getter)request_handles, NULL, NULL, NULL},
    {"owner", (getter)request_owner, NULL, "the connection that it came by", NULL},
    {NULL},
};

static PyTypeObject request_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "msrpc.rpc.requests.Request",
    .tp_doc = "A request that was not converted to a `Call`.",
    .tp_basicsize = sizeof(Request),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)request_dealloc,
    .tp_members = request_members,
    .tp_getset = request_getters,
};

/* --- sources ----------------------------------------------------------------------------------------------------- */

static PyObject *source_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"owner", "transport", "descriptor", "pending", "output", "ready", "most_bytes",
                            "most_pending", NULL};
    PyObject *owner, *transport, *pending, *output, *ready;
    int descriptor;
    Py_ssize_t most_bytes, most_pending;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOiO!O!O!nn", names, &owner, &transport, &descriptor,
                                     &PyDict_Type, &pending, &PyList_Type, &output, &PyList_Type, &ready, &most_bytes,
                                     &most_pending))
        return NULL;
    Source *self = (Source *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->transport = Py_NewRef(transport);
    self->pending = Py_NewRef(pending);
    self->output = Py_NewRef(output);
    self->ready = Py_NewRef(ready);
    self->caller = Py_NewRef(Py_None);
    self->handles = Py_NewRef(Py_None);
    self->entries = Py_NewRef(Py_None);
    self->holder = Py_NewRef(Py_None);
    self->descriptor = descriptor;
    self->most_bytes = most_bytes;
    self->most_pending = most_pending;
    self->heard = now();
    return (PyObject *)self;
}

static void drop_contexts(Source *self)
{
    while (self->context_count)
        Py_DECREF(self->contexts[--self->context_count].interface);
}

static void drop_answers(Source *self)
{
    while (self->answer_count)
        Py_DECREF(self->answers[--self->answer_count].stub);
}

static int source_traverse(Source *self, visitproc visit, void *arg)
{
    PyObject *all[] = {self->owner, self->transport, self->pending, self->output, self->ready, self->caller,
                       self->handles, self->entries, self->holder};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        Py_VISIT(all[index]);
    for (int index = 0; index < self->context_count; index++)
        Py_VISIT(self->contexts[index].interface);
    return 0;
}

/* Clear only members that can be part of a cycle: requests need the others. */
static int source_clear(Source *self)
{
    PyObject *none = Py_NewRef(Py_None);
    Py_SETREF(self->owner, none);
    Py_SETREF(self->transport, Py_NewRef(none));
    PyDict_Clear(self->pending);
    drop_contexts(self);
    self->is_open = 0;
    return 0;
}

static void source_dealloc(Source *self)
{
    PyObject_GC_UnTrack(self);
    drop_contexts(self);
    drop_answers(self);
    PyMem_Free(self->answers);
    PyMem_Free(self->kept);
    Py_XDECREF(self->handle);
    PyObject *all[] = {self->owner, self->transport, self->pending, self->output, self->ready, self->caller,
                       self->handles, self->entries, self->holder};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        Py_XDECREF(all[index]);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *source_know(Source *self, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (count != 4 || !PyDict_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "know(contexts, caller, handles, most_reply)");
    Py_ssize_t most_reply = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    drop_contexts(self);
    while (PyDict_Next(arguments[0], &at, &key, &value) && self->context_count < MOST_CONTEXTS) {
        PyObject *interface, *opnums, *opnum, *iterator;
        long identifier = PyLong_AsLong(key);
        if (PyErr_Occurred())
            return NULL;
        if (!PyTuple_Check(value))
            return PyErr_Format(PyExc_TypeError, "a context must be a pair of an interface and operation numbers");
        if (!PyArg_ParseTuple(value, "OO", &interface, &opnums) || (iterator = PyObject_GetIter(opnums)) == NULL)
            return NULL;
        uint64_t operations = 0;
        while ((opnum = PyIter_Next(iterator)) != NULL) {
            long number = PyLong_AsLong(opnum);
            Py_DECREF(opnum);
            if (number >= 0 && number < MOST_OPERATIONS)
                operations |= (uint64_t)1 << number;
        }
        Py_DECREF(iterator);
        if (PyErr_Occurred())
            return NULL;
        self->contexts[self->context_count++]
            = (Context){.identifier = (uint16_t)identifier, .interface = Py_NewRef(interface), .operations = operations};
    }
    PyObject *entries = PyObject_GetAttrString(arguments[2], "entries");
    PyObject *holder = entries == NULL ? NULL : PyObject_GetAttrString(arguments[2], "holder");
    if (holder == NULL || !PyDict_Check(entries)) {
        Py_XDECREF(entries);
        Py_XDECREF(holder);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "entries is not a dict");
    }
    Py_SETREF(self->entries, entries);
    Py_SETREF(self->holder, holder);
    Py_SETREF(self->caller, Py_NewRef(arguments[1]));
    Py_SETREF(self->handles, Py_NewRef(arguments[2]));
    self->most_reply = most_reply;
    Py_RETURN_NONE;
}

static const Context *context_of(const Source *self, const Header *header)
{
    for (int index = 0; index < self->context_count; index++)
        if (self->contexts[index].identifier == header->context_id)
            return header->opnum < MOST_OPERATIONS && self->contexts[index].operations >> header->opnum & 1
                       ? &self->contexts[index]
                       : NULL;
    return NULL;
}

/* Append the request that begins at `data` to the gathered ones. Returns 1; 0 if it must be served elsewhere; or -1 with an
   error. */
static int take_one(Source *self, const Header *header, const char *stub, PyObject *gathered)
{
    const Context *context = context_of(self, header);
    if (context == NULL)
        return 0;
    PyObject *call_id = PyLong_FromUnsignedLong(header->call_id);
    if (call_id == NULL)
        return -1;
    int known = PyDict_GET_SIZE(self->pending) ? PyDict_Contains(self->pending, call_id) : 0;
    if (known) {
        Py_DECREF(call_id);
        return known < 0 ? -1 : 0;
    }
    Request *request = made(self, context, header, stub);
    int failed = request == NULL || PyDict_SetItem(self->pending, call_id, (PyObject *)request) < 0
                 || PyList_Append(gathered, (PyObject *)request) < 0;
    Py_DECREF(call_id);
    Py_XDECREF(request);
    return failed ? -1 : 1;
}

/* Gather the requests at the start of these bytes. Returns their size in bytes, or -1 with an error. */
static Py_ssize_t take_all(Source *self, const char *data, Py_ssize_t size, PyObject *gathered, Py_ssize_t most)
{
    Py_ssize_t at = 0;
    while (self->is_open && PyList_GET_SIZE(gathered) < most && PyDict_GET_SIZE(self->pending) < self->most_pending) {
        Header header;
        if (!is_whole_request(data + at, size - at, self->most_bytes, &header))
            break;
        int taken = take_one(self, &header, data + at + sizeof header, gathered);
        if (taken < 0)
            return -1;
        if (!taken)
            break;
        at += header.length;
    }
    return at;
}

/* Keep the received part of a request until the rest arrives. `is_next`: a complete one preceded it. Returns -1 with an
   error. */
static int keep(Source *self, const char *data, Py_ssize_t size, int is_next)
{
    char *kept = PyMem_Realloc(self->kept, (size_t)size);
    if (kept == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(kept, data, (size_t)size);
    self->kept = kept;
    self->kept_size = size;
    if (is_next || !self->incomplete_since)
        self->incomplete_since = self->heard;
    return 0;
}

static void keep_nothing(Source *self)
{
    PyMem_Free(self->kept);
    self->kept = NULL;
    self->kept_size = 0;
    self->incomplete_since = 0;
}

static PyMethodDef source_methods[] = {
    {"know", (PyCFunction)(void (*)(void))source_know, METH_FASTCALL,
     "know(contexts, caller, handles, most_reply): set what was negotiated"},
    {NULL},
};

static PyMemberDef source_members[] = {
    {"is_open", T_BOOL, offsetof(Source, is_open), 0, "whether nothing but whole requests is expected"},
    {"heard", T_DOUBLE, offsetof(Source, heard), READONLY, "when it brought something: seconds of the monotonic clock"},
    {"incomplete_since", T_DOUBLE, offsetof(Source, incomplete_since), READONLY,
     "time since which a request is incomplete, by the same clock; 0 if none is"},
    {"descriptor", T_INT, offsetof(Source, descriptor), 0, "of the socket; -1 when it is closed"},
    {"owner", T_OBJECT, offsetof(Source, owner), READONLY, NULL},
    {NULL},
};

static PyTypeObject source_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "msrpc.rpc.requests.Source",
    .tp_doc = "Source(owner, transport, descriptor, pending, output, ready, most_bytes, most_pending)",
    .tp_basicsize = sizeof(Source),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = source_new,
    .tp_dealloc = (destructor)source_dealloc,
    .tp_traverse = (traverseproc)source_traverse,
    .tp_clear = (inquiry)source_clear,
    .tp_methods = source_methods,
    .tp_members = source_members,
};

/* --- lists of calls: `Request` objects, and `Call` objects of requests that were read elsewhere -------------------- */

static int same_operation(PyObject *one, PyObject *other)
{
    if (Py_IS_TYPE(one, &request_type) && Py_IS_TYPE(other, &request_type))
        return ((Request *)one)->interface == ((Request *)other)->interface
               && ((Request *)one)->opnum == ((Request *)other)->opnum;
    PyObject *names[] = {name_interface, name_opnum};
    int same = 1;
    for (int index = 0; same == 1 && index < 2; index++) {
        PyObject *mine = PyObject_GetAttr(one, names[index]), *its = PyObject_GetAttr(other, names[index]);
        same = mine == NULL || its == NULL ? -1 : index ? PyObject_RichCompareBool(mine, its, Py_EQ) : mine == its;
        Py_XDECREF(mine);
        Py_XDECREF(its);
    }
    return same;
}

/* Append a call to the list of its operation. Returns -1 with an error. */
static int sort_in(PyObject *sorted, PyObject *call)
{
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(sorted); index++) {
        PyObject *list = PyList_GET_ITEM(sorted, index);
        int same = same_operation(PyList_GET_ITEM(list, 0), call);
        if (same)
            return same < 0 ? -1 : PyList_Append(list, call);
    }
    PyObject *list = PyList_New(1);
    if (list == NULL)
        return -1;
    PyList_SET_ITEM(list, 0, Py_NewRef(call));
    int failed = PyList_Append(sorted, list);
    Py_DECREF(list);
    return failed;
}

static PyObject *by_operation(PyObject *module, PyObject *calls)
{
    (void)module;
    if (!PyList_Check(calls))
        return PyErr_Format(PyExc_TypeError, "by_operation(calls)");
    PyObject *sorted = PyList_New(0);
    for (Py_ssize_t index = 0; sorted != NULL && index < PyList_GET_SIZE(calls); index++)
        if (sort_in(sorted, PyList_GET_ITEM(calls, index)) < 0)
            Py_CLEAR(sorted);
    return sorted;
}

static PyObject *stub_of(PyObject *call)
{
    if (Py_IS_TYPE(call, &request_type))
        return Py_NewRef(((Request *)call)->stub);
    PyObject *stub = PyObject_GetAttr(call, name_stub);
    if (stub != NULL && !PyBytes_Check(stub)) {
        PyErr_Format(PyExc_TypeError, "a stub must be bytes, not %.80s", Py_TYPE(stub)->tp_name);
        Py_CLEAR(stub);
    }
    return stub;
}

/* Return a list with the result of `one` for each call. The list ends where `one` returns NULL without an error. */
static PyObject *of_each(PyObject *calls, PyObject *(*one)(PyObject *call, PyObject *argument), PyObject *argument)
{
    if (!PyList_Check(calls))
        return PyErr_Format(PyExc_TypeError, "calls must be a list");
    PyObject *found = PyList_New(0);
    for (Py_ssize_t index = 0; found != NULL && index < PyList_GET_SIZE(calls); index++) {
        PyObject *value = one(PyList_GET_ITEM(calls, index), argument);
        if (value == NULL && !PyErr_Occurred())
            break;
        if (value == NULL || PyList_Append(found, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(value);
    }
    return found;
}

static PyObject *just_stub(PyObject *call, PyObject *unused)
{
    (void)unused;
    return stub_of(call);
}

static PyObject *stubs(PyObject *module, PyObject *calls)
{
    (void)module;
    return of_each(calls, just_stub, NULL);
}

static PyObject *leading_word(PyObject *call, PyObject *unused)
{
    (void)unused;
    uint32_t word;
    PyObject *stub = stub_of(call), *found = NULL;
    if (stub != NULL && PyBytes_GET_SIZE(stub) >= (Py_ssize_t)sizeof word) {
        memcpy(&word, PyBytes_AS_STRING(stub), sizeof word);
        found = PyLong_FromUnsignedLong(word);
    }
    Py_XDECREF(stub);
    return found;
}

static PyObject *leading_words(PyObject *module, PyObject *calls)
{
    (void)module;
    return of_each(calls, leading_word, NULL);
}

/* Return the context handle at the beginning of a stub. */
static PyObject *handle_of(Source *source, PyObject *stub)
{
    const char *bytes = PyBytes_AS_STRING(stub);
    if (source->handle == NULL || memcmp(PyBytes_AS_STRING(source->handle), bytes, HANDLE_SIZE)) {
        PyObject *handle = PyBytes_FromStringAndSize(bytes, HANDLE_SIZE);
        if (handle == NULL)
            return NULL;
        Py_XSETREF(source->handle, handle);
    }
    return Py_NewRef(source->handle);
}

/* Return the object behind a context handle, like `association.ContextHandles.find`, which is called if the holder is
   another object. */
static PyObject *held_object(PyObject *call, PyObject *kind)
{
    PyObject *stub = stub_of(call), *found = NULL, *handle = NULL;
    Source *source = Py_IS_TYPE(call, &request_type) ? ((Request *)call)->source : NULL;
    if (stub != NULL && PyBytes_GET_SIZE(stub) >= HANDLE_SIZE)
        handle = source != NULL ? handle_of(source, stub) : PyBytes_FromStringAndSize(PyBytes_AS_STRING(stub), HANDLE_SIZE);
    if (handle != NULL && source != NULL) {
        PyObject *entry = PyDict_GetItemWithError(source->entries, handle); /* kind, object, rundown, holder */
        if (entry != NULL && PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) == 4
            && PyTuple_GET_ITEM(entry, 0) == kind && PyTuple_GET_ITEM(entry, 3) == source->holder)
            found = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    }
    if (handle != NULL && found == NULL && !PyErr_Occurred()) {
        PyObject *handles = PyObject_GetAttr(call, name_handles);
        if (handles != NULL)
            found = PyObject_CallMethodObjArgs(handles, name_find, handle, kind, NULL);
        Py_XDECREF(handles);
        if (found == Py_None)
            Py_CLEAR(found);
    }
    Py_XDECREF(handle);
    Py_XDECREF(stub);
    return found;
}

static PyObject *held(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "held(calls, kind)");
    return of_each(arguments[0], held_object, arguments[1]);
}

static int is_true(PyObject *call, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(call, name);
    int is = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return is;
}

/* Whether a request was orphaned: it was removed from the pending calls without an answer. One that was converted to a
   `Call` was not. Returns -1 with an error. */
static int is_orphaned(const Request *request)
{
    PyObject *call_id = PyLong_FromUnsignedLong(request->call_id);
    PyObject *entry = call_id == NULL ? NULL : PyDict_GetItemWithError(request->source->pending, call_id);
    Py_XDECREF(call_id);
    if (entry == NULL)
        return PyErr_Occurred() ? -1 : 1;
    return Py_IS_TYPE(entry, &request_type) && entry != (PyObject *)request;
}

/* Return the file descriptor of the socket of a call; -1 if there is none, -2 with an error, -3 if the call was canceled. */
static int descriptor_of(PyObject *call)
{
    if (Py_IS_TYPE(call, &request_type)) {
        int descriptor = ((Request *)call)->source->descriptor, orphaned = is_orphaned((Request *)call);
        return orphaned < 0 ? -2 : orphaned || descriptor < 0 ? -3 : descriptor;
    }
    int cancelled = is_true(call, name_cancelled);
    if (cancelled)
        return cancelled < 0 ? -2 : -3;
    PyObject *connection = PyObject_GetAttr(call, name_connection);
    PyObject *descriptor = connection == NULL ? NULL : PyObject_GetAttr(connection, name_descriptor);
    long number = descriptor == NULL ? -1 : PyLong_AsLong(descriptor);
    Py_XDECREF(connection);
    Py_XDECREF(descriptor);
    return PyErr_Occurred() ? -2 : number < 0 ? -1 : (int)number;
}

static PyObject *any_abandoned(PyObject *module, PyObject *calls)
{
    (void)module;
    if (!PyList_Check(calls))
        return PyErr_Format(PyExc_TypeError, "any_abandoned(calls)");
    struct pollfd few[64], *all = few;
    Py_ssize_t size = PyList_GET_SIZE(calls);
    if (size > 64 && (all = PyMem_New(struct pollfd, (size_t)size)) == NULL)
        return PyErr_NoMemory();
    nfds_t asked = 0;
    int found = 0;
    for (Py_ssize_t index = 0; !found && index < size; index++) {
        int descriptor = descriptor_of(PyList_GET_ITEM(calls, index));
        if (descriptor >= 0)
            all[asked++] = (struct pollfd){.fd = descriptor, .events = POLLRDHUP};
        else if (descriptor < -1)
            found = descriptor == -2 ? -1 : 1;
    }
    if (!found && asked)
        found = poll(all, asked, 0) > 0; /* only errors are reported in addition */
    if (all != few)
        PyMem_Free(all);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static int add_answer(Source *source, const Request *request, PyObject *stub)
{
    if (source->answer_count == source->answer_room) {
        Py_ssize_t room = source->answer_room ? 2 * source->answer_room : 2;
        Answer *more = PyMem_Resize(source->answers, Answer, (size_t)room);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        source->answers = more;
        source->answer_room = room;
    }
    if (!source->answer_count && PyList_Append(source->ready, (PyObject *)source) < 0)
        return -1;
    source->answers[source->answer_count++] = (Answer){
        .header = response_header(request->call_id, request->context_id, (size_t)PyBytes_GET_SIZE(stub)),
        .stub = Py_NewRef(stub),
    };
    return 0;
}

/* Returns 1 if nobody awaits the answer. */
static int answer_request(Request *request, PyObject *stub)
{
    Source *source = request->source;
    PyObject *call_id = PyLong_FromUnsignedLong(request->call_id);
    if (call_id == NULL)
        return -1;
    int failed = 0;
    /* Missing: the client has disconnected or orphaned the call, or it was converted to a `Call`. */
    if (PyDict_GetItemWithError(source->pending, call_id) == (PyObject *)request) {
        failed = PyDict_DelItem(source->pending, call_id);
        if (!failed && !PyList_GET_SIZE(source->output)
            && (Py_ssize_t)sizeof(Header) + PyBytes_GET_SIZE(stub) <= source->most_reply)
            failed = add_answer(source, request, stub);
        else if (!failed) { /* after other pending output, or in fragments */
            PyObject *done = PyObject_CallMethodObjArgs(source->owner, name_respond, (PyObject *)request, stub, NULL);
            failed = done == NULL ? -1 : 0;
            Py_XDECREF(done);
        }
    } else
        failed = PyErr_Occurred() ? -1 : 1;
    Py_DECREF(call_id);
    return failed;
}

static PyObject *answer(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_Check(arguments[0]) || !PyList_Check(arguments[1])
        || PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "answer(calls, stubs)");
    PyObject *missed = PyList_New(0);
    for (Py_ssize_t index = 0; missed != NULL && index < PyList_GET_SIZE(arguments[0]); index++) {
        PyObject *call = PyList_GET_ITEM(arguments[0], index), *stub = PyList_GET_ITEM(arguments[1], index);
        int failed = -1;
        if (!PyBytes_Check(stub))
            PyErr_Format(PyExc_TypeError, "a reply must be bytes, not %.80s", Py_TYPE(stub)->tp_name);
        else if (Py_IS_TYPE(call, &request_type))
            failed = answer_request((Request *)call, stub);
        else {
            failed = is_true(call, name_over);
            if (!failed) {
                PyObject *done = PyObject_CallMethodOneArg(call, name_reply, stub);
                failed = done == NULL ? -1 : 0;
                Py_XDECREF(done);
            } else if (failed > 0)
                failed = 0;
        }
        if (failed < 0 || (failed && PyList_Append(missed, call) < 0))
            Py_CLEAR(missed);
    }
    return missed;
}

/* --- sending ----------------------------------------------------------------------------------------------------- */

/* Whether the transport has no unsent data and has not closed the socket. */
static int is_free(Source *source)
{
    PyObject *closing = PyObject_CallMethodNoArgs(source->transport, name_is_closing);
    int is_open = closing == Py_False;
    Py_XDECREF(closing);
    if (!is_open || source->descriptor < 0)
        return 0;
    PyObject *buffered = PyObject_CallMethodNoArgs(source->transport, name_buffered);
    int is_empty = buffered != NULL && PyLong_Check(buffered) && PyObject_IsTrue(buffered) == 0;
    Py_XDECREF(buffered);
    return is_empty;
}

/* Send replies, starting with one, as far as the socket accepts them. Returns the number of bytes sent. */
static size_t send_some(Source *source, Py_ssize_t from)
{
    struct iovec pieces[MOST_PIECES];
    int used = 0;
    for (; from < source->answer_count && used < MOST_PIECES; from++) {
        Answer *next = &source->answers[from];
        pieces[used++] = (struct iovec){.iov_base = &next->header, .iov_len = sizeof next->header};
        pieces[used++] = (struct iovec){.iov_base = PyBytes_AS_STRING(next->stub),
                                        .iov_len = (size_t)PyBytes_GET_SIZE(next->stub)};
    }
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)used};
    ssize_t sent;
    do
        sent = sendmsg(source->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? 0 : (size_t)sent; /* full, or disconnected: the transport will detect it */
}

/* Return the rest of all replies after `sent` bytes. */
static PyObject *rest_of(Source *source, size_t sent)
{
    size_t size = 0;
    for (Py_ssize_t index = 0; index < source->answer_count; index++)
        size += sizeof(Header) + (size_t)PyBytes_GET_SIZE(source->answers[index].stub);
    if (sent >= size)
        return Py_NewRef(Py_None);
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size - sent));
    if (rest == NULL)
        return NULL;
    char *into = PyBytes_AS_STRING(rest);
    for (Py_ssize_t index = 0; index < source->answer_count; index++) {
        Answer *next = &source->answers[index];
        const char *parts[] = {(char *)&next->header, PyBytes_AS_STRING(next->stub)};
        size_t sizes[] = {sizeof next->header, (size_t)PyBytes_GET_SIZE(next->stub)};
        for (int part = 0; part < 2; part++) {
            size_t skipped = sent < sizes[part] ? sent : sizes[part];
            memcpy(into, parts[part] + skipped, sizes[part] - skipped);
            into += sizes[part] - skipped;
            sent -= skipped;
        }
    }
    return rest;
}

/* Send the replies of a source. Returns the bytes that its transport must send, or None. */
static PyObject *flushed(Source *source)
{
    size_t sent = 0, due = 0;
    if (is_free(source))
        for (Py_ssize_t from = 0; sent == due && from < source->answer_count; from += MOST_PIECES / 2) {
            for (Py_ssize_t index = from; index < source->answer_count && index < from + MOST_PIECES / 2; index++)
                due += sizeof(Header) + (size_t)PyBytes_GET_SIZE(source->answers[index].stub);
            sent += send_some(source, from);
        }
    PyErr_Clear(); /* of the query: if it fails, the transport sends */
    PyObject *rest = rest_of(source, sent);
    drop_answers(source);
    return rest;
}

static PyObject *flush(PyObject *module, PyObject *ready)
{
    (void)module;
    if (!PyList_Check(ready))
        return PyErr_Format(PyExc_TypeError, "flush(sources)");
    PyObject *left = PyList_New(0);
    for (Py_ssize_t index = 0; left != NULL && index < PyList_GET_SIZE(ready); index++) {
        Source *source = (Source *)Py_NewRef(PyList_GET_ITEM(ready, index));
        PyObject *rest = Py_IS_TYPE(source, &source_type) ? flushed(source) : NULL, *pair = NULL;
        if (rest != NULL && rest != Py_None) {
            pair = PyTuple_Pack(2, source->owner, rest);
            if (pair == NULL || PyList_Append(left, pair) < 0)
                Py_CLEAR(rest);
        }
        if (rest == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "flush(sources)");
            Py_CLEAR(left);
        }
        Py_XDECREF(pair);
        Py_XDECREF(rest);
        Py_DECREF(source);
    }
    if (left != NULL && PyList_SetSlice(ready, 0, PY_SSIZE_T_MAX, NULL) < 0)
        Py_CLEAR(left);
    return left;
}

/* --- reading many sockets ---------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int descriptor;    /* epoll instance; -1: closed */
    PyObject *sources; /* descriptor -> source */
    int portions;      /* number of sources with data in the last `read` */
    char buffer[256 << 10];
} Poller;

static PyObject *poller_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    if (PyTuple_GET_SIZE(arguments) || (keywords != NULL && PyDict_GET_SIZE(keywords)))
        return PyErr_Format(PyExc_TypeError, "Poller() takes no arguments");
    Poller *self = (Poller *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->sources = PyDict_New();
    self->descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (self->descriptor < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    if (self->descriptor < 0 || self->sources == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void release(Poller *self)
{
    if (self->descriptor >= 0)
        close(self->descriptor);
    self->descriptor = -1;
}

static void poller_dealloc(Poller *self)
{
    release(self);
    Py_XDECREF(self->sources);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *poller_close(Poller *self, PyObject *unused)
{
    (void)unused;
    release(self);
    PyDict_Clear(self->sources);
    Py_RETURN_NONE;
}

static PyObject *poller_add(Poller *self, PyObject *object)
{
    if (!Py_IS_TYPE(object, &source_type))
        return PyErr_Format(PyExc_TypeError, "add(source)");
    Source *source = (Source *)object;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = source->descriptor};
    PyObject *key = PyLong_FromLong(source->descriptor);
    if (key == NULL)
        return NULL;
    /* A descriptor of an earlier source now belongs to the new one: the kernel removes closed descriptors. */
    int failed = PyDict_SetItem(self->sources, key, object);
    if (!failed && epoll_ctl(self->descriptor, EPOLL_CTL_ADD, source->descriptor, &event) < 0 && errno != EEXIST) {
        int code = errno;
        if (!PyDict_DelItem(self->sources, key)) {
            errno = code;
            PyErr_SetFromErrno(PyExc_OSError);
        }
        failed = -1;
    }
    Py_DECREF(key);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *poller_remove(Poller *self, PyObject *object)
{
    if (!Py_IS_TYPE(object, &source_type))
        return PyErr_Format(PyExc_TypeError, "remove(source)");
    int descriptor = ((Source *)object)->descriptor;
    PyObject *key = PyLong_FromLong(descriptor);
    if (key == NULL)
        return NULL;
    int failed = 0;
    if (PyDict_GetItemWithError(self->sources, key) == object) {
        epoll_ctl(self->descriptor, EPOLL_CTL_DEL, descriptor, NULL); /* fails if it is closed, and then it was already removed */
        failed = PyDict_DelItem(self->sources, key);
    } else if (PyErr_Occurred())
        failed = -1;
    Py_DECREF(key);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int leave(PyObject *left, PyObject *source, const char *rest, Py_ssize_t size)
{
    PyObject *bytes = rest == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(rest, size);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, source, bytes);
    int failed = pair == NULL ? -1 : PyList_Append(left, pair);
    Py_XDECREF(bytes);
    Py_XDECREF(pair);
    return failed;
}

/* Read from one source. Returns -1 with an error. */
static int read_one(Poller *self, Source *source, PyObject *gathered, Py_ssize_t most, PyObject *left)
{
    Py_ssize_t kept = source->kept_size;
    ssize_t size = recv(source->descriptor, self->buffer + kept, sizeof self->buffer - (size_t)kept, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (size <= 0)
        return leave(left, (PyObject *)source, NULL, 0);
    if (kept)
        memcpy(self->buffer, source->kept, (size_t)kept);
    size += kept;
    self->portions++;
    source->heard = now();
    Py_ssize_t taken = take_all(source, self->buffer, size, gathered, most);
    if (taken < 0)
        return -1;
    const char *rest = self->buffer + taken;
    if (taken < size && source->is_open && is_beginning_of_whole_request(rest, size - taken, source->most_bytes))
        return keep(source, rest, size - taken, taken > 0);
    if (kept)
        keep_nothing(source);
    return taken == size ? 0 : leave(left, (PyObject *)source, rest, size - taken);
}

static PyObject *poller_read(Poller *self, PyObject *const *arguments, Py_ssize_t count)
{
    struct epoll_event events[MOST_EVENTS];
    if (count != 2 || !PyList_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "read(gathered, most)");
    Py_ssize_t most = PyLong_AsSsize_t(arguments[1]);
    PyObject *left = PyErr_Occurred() ? NULL : PyList_New(0);
    if (left == NULL)
        return NULL;
    self->portions = 0;
    int found = MOST_EVENTS;
    while (found == MOST_EVENTS && PyList_GET_SIZE(arguments[0]) < most) {
        found = epoll_wait(self->descriptor, events, MOST_EVENTS, 0);
        for (int index = 0; index < found && PyList_GET_SIZE(arguments[0]) < most; index++) {
            PyObject *key = PyLong_FromLong(events[index].data.fd);
            PyObject *source = key == NULL ? NULL : PyDict_GetItemWithError(self->sources, key);
            Py_XDECREF(key);
            if (source == NULL && !PyErr_Occurred())
                continue;
            if (source == NULL || read_one(self, (Source *)source, arguments[0], most, left) < 0) {
                Py_DECREF(left);
                return NULL;
            }
        }
        if (PyList_GET_SIZE(left)) /* these must be served first */
            break;
    }
    return left;
}

static PyMethodDef poller_methods[] = {
    {"add", (PyCFunction)poller_add, METH_O, "add(source): read its socket from now on; raises OSError"},
    {"remove", (PyCFunction)poller_remove, METH_O, "remove(source): read it no longer, if it was read"},
    {"read", (PyCFunction)(void (*)(void))poller_read, METH_FASTCALL,
     "read(gathered, most): append requests to a list, up to a length. Return the rest as pairs of "
     "a source and its other bytes, or None if its connection has ended"},
    {"close", (PyCFunction)poller_close, METH_NOARGS, "close(): forget all sources"},
    {NULL},
};

static PyMemberDef poller_members[] = {
    {"descriptor", T_INT, offsetof(Poller, descriptor), READONLY, "readable while a source is"},
    {"portions", T_INT, offsetof(Poller, portions), READONLY, "number of sources with data in the last `read`"},
    {NULL},
};

static PyTypeObject poller_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "msrpc.rpc.requests.Poller",
    .tp_doc = "Poller(): reads the sockets of sources. Raises OSError.",
    .tp_basicsize = sizeof(Poller),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = poller_new,
    .tp_dealloc = (destructor)poller_dealloc,
    .tp_methods = poller_methods,
    .tp_members = poller_members,
};

static PyMethodDef functions[] = {
    {"by_operation", by_operation, METH_O,
     "by_operation(calls): return lists of calls of the same operation, in the order of their first calls"},
    {"stubs", stubs, METH_O, "stubs(calls): return the stub of each call"},
    {"leading_words", leading_words, METH_O,
     "leading_words(calls): return the first four bytes of each stub as a number, up to the first shorter stub"},
    {"held", (PyCFunction)(void (*)(void))held, METH_FASTCALL,
     "held(calls, kind): return the objects of the context handles at the start of stubs, up to the first of another kind"},
    {"any_abandoned", any_abandoned, METH_O, "any_abandoned(calls): return whether the client of a call has disconnected"},
    {"answer", (PyCFunction)(void (*)(void))answer, METH_FASTCALL, "answer(calls, stubs): answer those still pending. Return the other `Request`s"},
    {"flush", flush, METH_O, "flush(sources): send their replies, and clear the list. Return the bytes that connections must send"},
    {NULL},
};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "msrpc.rpc.requests", "Requests that are served in batches.", -1,
#ifdef IS_BUILT
    functions,
#endif
};

PyMODINIT_FUNC PyInit_requests(void)
{
#ifdef IS_BUILT
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_is_closing, "is_closing"}, {&name_buffered, "get_write_buffer_size"}, {&name_respond, "respond"},
        {&name_reply, "reply"}, {&name_over, "over"}, {&name_cancelled, "cancelled"},
        {&name_connection, "connection"}, {&name_descriptor, "descriptor"}, {&name_interface, "interface"},
        {&name_opnum, "opnum"}, {&name_stub, "stub"}, {&name_handles, "handles"}, {&name_find, "find"},
    };
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if ((*names[index].name = PyUnicode_InternFromString(names[index].text)) == NULL)
            return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &source_type) < 0 || PyModule_AddType(module, &request_type) < 0
        || PyModule_AddType(module, &poller_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
#else
    return PyErr_Format(PyExc_ImportError, "%s requires a little-endian processor", definition.m_name);
#endif
}
