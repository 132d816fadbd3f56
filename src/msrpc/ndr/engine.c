/* Table-driven codec for NDR 2.0 (C706 chapter 14) and NDR64 ([MS-RPCE] 2.2.5), which replaces the generated Python
   code for well-formed values.

   `msrpc.idl.table_backend` writes the tables. The engine stops at any value that does not match its declaration. The
   interpreted codec of the same operation then processes the same argument from the start and reports the error. The
   engine may therefore reject values that the interpreted codec accepts, but never the reverse.

   Bodies precede pointees, so each construct is processed in two passes. In decoding, the slot of a pointer holds None
   (NULL, which is final) or True (to be replaced) between the passes. A new object is stored in its owner before it is
   filled, so that only the outermost object must be released after an error.

   A structure has a table for each of the two syntaxes. In NDR64, pointers and counts have 8 bytes, structures end at a
   multiple of their alignment, and unions are aligned; the tables contain all other sizes.

   Members of the generated classes are `__slots__`, whose offsets are read once from their descriptors. Tables live as
   long as the process. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define DEEPEST 16 /* same as MAXIMUM_DEPTH of ndr.runtime */
#define LATE 16    /* maximum deferred array counts in the arguments of a call */
#define FIRST_REFERENT 0x20000
#define LARGEST_COUNT 0x7FFFFFFF /* maximum elements if counts have 64 bits, as in idl.python_decoder */

typedef enum { REFUSED, SCALAR, OPAQUE, POINTER, ARRAY, STRUCT, UNION } Kind; /* REFUSED: the engine stops at a value */
typedef enum { BYTES, GUID, HANDLE } Content;
typedef enum { NUMBER, MEMBER, INVERTED, BOTH, SUM, CHOICE } Operator;

typedef struct Record Record;
typedef struct Type Type;
typedef struct Expression Expression;

struct Expression { /* of size_is, length_is or switch_is */
    Operator operator;
    int64_t number;
    Py_ssize_t offset; /* MEMBER */
    const Expression *operands[3];
};

typedef struct {
    const Expression *expression; /* NULL: there is nothing to compare */
    bool late;                    /* for an argument: a named parameter may follow the array */
} Count;

typedef struct {
    const Type *type;
    Py_ssize_t offset;
    const Expression *selector; /* for a union: switch_is */
    bool ranged;
    int64_t low, high;
} Member;

typedef struct {
    Py_ssize_t label_count; /* 0: default */
    int64_t *labels;
    bool empty;
    Member member;
} Arm;

struct Type {
    Kind kind;
    char format;                /* SCALAR, and discriminant of a UNION: `struct` character, 'u' for a wchar_t */
    Py_ssize_t size, alignment; /* SCALAR, OPAQUE; UNION: size of the discriminant, largest alignment of an arm */
    Content content;            /* OPAQUE */
    bool unique;                /* POINTER: may be NULL */
    const Type *to;             /* POINTER, ARRAY */
    bool varying, string;       /* ARRAY */
    Py_ssize_t minimum;         /* ARRAY: minimum size of an element in bytes */
    Count size_is, length_is;   /* ARRAY */
    Record *record;             /* STRUCT */
    Arm *arms;                  /* UNION */
    Py_ssize_t arm_count;
};

struct Record { /* a structure, or the arguments of a call */
    PyTypeObject *class;
    Py_ssize_t alignment;
    bool recursive, has_pointers, ndr64;
    Member *members;
    Py_ssize_t member_count;
    const Member *trailing; /* the last one, if it is an array whose count precedes the structure */
    Py_ssize_t *absent; /* attributes that only exist for arms of a union */
    Py_ssize_t absent_count;
};

static PyObject *the_null; /* ndr.runtime.NULL */
static PyObject *records[2]; /* for NDR 2.0 and for NDR64: class -> capsule of its Record */

static ALWAYS_INLINE PyObject **slot_of(PyObject *owner, Py_ssize_t offset)
{
    return (PyObject **)((char *)owner + offset);
}

static ALWAYS_INLINE bool put(PyObject **slot, PyObject *value)
{
    PyObject *old = *slot;
    if (value == NULL)
        return false;
    *slot = value;
    Py_XDECREF(old);
    return true;
}

static bool integer_of(PyObject *object, int64_t *value)
{
    int overflow;
    if (object == NULL || !PyLong_Check(object) || PyBool_Check(object))
        return false;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0;
}

static bool value_of(const Expression *e, PyObject *owner, int64_t *value)
{
    int64_t other;
    switch (e->operator) {
    case NUMBER:
        *value = e->number;
        return true;
    case MEMBER:
        return integer_of(*slot_of(owner, e->offset), value);
    case INVERTED:
        if (!value_of(e->operands[0], owner, value))
            return false;
        *value = ~*value;
        return true;
    case CHOICE:
        return value_of(e->operands[0], owner, &other) && value_of(e->operands[other ? 1 : 2], owner, value);
    default:
        if (!value_of(e->operands[0], owner, value) || !value_of(e->operands[1], owner, &other))
            return false;
        if (e->operator == SUM)
            return !__builtin_add_overflow(*value, other, value);
        *value &= other;
        return true;
    }
}

static bool satisfied(const Count *count, PyObject *owner, int64_t value)
{
    int64_t wanted;
    return count->expression == NULL || (value_of(count->expression, owner, &wanted) && wanted == value);
}

static ALWAYS_INLINE bool within(const Member *member, int64_t value)
{
    return !member->ranged || (member->low <= value && value <= member->high);
}

static const Arm *selected_arm(const Type *type, const Member *member, PyObject *owner, int64_t *selected)
{
    const Arm *otherwise = NULL;
    if (!value_of(member->selector, owner, selected))
        return NULL;
    for (const Arm *arm = type->arms; arm < type->arms + type->arm_count; arm++) {
        if (arm->label_count == 0)
            otherwise = arm;
        for (Py_ssize_t i = 0; i < arm->label_count; i++)
            if (arm->labels[i] == *selected)
                return arm;
    }
    return otherwise;
}

static bool has_pointers(const Type *type)
{
    switch (type->kind) {
    case POINTER:
        return true;
    case ARRAY:
        return has_pointers(type->to);
    case STRUCT:
        return type->record->has_pointers;
    case UNION:
        for (const Arm *arm = type->arms; arm < type->arms + type->arm_count; arm++)
            if (!arm->empty && has_pointers(arm->member.type))
                return true;
        return false;
    default:
        return false;
    }
}

/* -- decoding -------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t size, at;
    bool big, ndr64;
    int depth, late_count;
    struct {
        const Count *count;
        int64_t value;
    } late[LATE];
} Reader;

static bool read_body(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot);
static bool read_deferred(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot);
static bool read_elements(Reader *r, const Member *member, const Type *array, int64_t count, PyObject *owner,
                          PyObject **slot);
static bool read_pointee(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot,
                         PyObject *null);

/* Returns a pointer to the next bytes with this alignment and size, or NULL if there are too few. */
static ALWAYS_INLINE const uint8_t *take(Reader *r, Py_ssize_t alignment, Py_ssize_t size)
{
    Py_ssize_t begin = (r->at + alignment - 1) & ~(alignment - 1);
    if (begin > r->size || size > r->size - begin)
        return NULL;
    r->at = begin + size;
    return r->bytes + begin;
}

static ALWAYS_INLINE uint64_t bits_of(const uint8_t *bytes, Py_ssize_t size, bool big)
{
    uint16_t half;
    uint32_t word;
    uint64_t both;
    switch (size) {
    case 1:
        return *bytes;
    case 2:
        memcpy(&half, bytes, 2);
        return big ? be16toh(half) : le16toh(half);
    case 4:
        memcpy(&word, bytes, 4);
        return big ? be32toh(word) : le32toh(word);
    default:
        memcpy(&both, bytes, 8);
        return big ? be64toh(both) : le64toh(both);
    }
}

static ALWAYS_INLINE int64_t signed_of(uint64_t bits, char format)
{
    switch (format) {
    case 'b':
        return (int8_t)bits;
    case 'h':
        return (int16_t)bits;
    case 'i':
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static bool read_scalar(Reader *r, const Member *member, const Type *type, PyObject **slot)
{
    const uint8_t *bytes = take(r, type->size, type->size);
    if (bytes == NULL)
        return false;
    uint64_t bits = bits_of(bytes, type->size, r->big);
    if (type->format == 'Q')
        return !member->ranged && put(slot, PyLong_FromUnsignedLongLong(bits));
    int64_t value = signed_of(bits, type->format);
    return within(member, value) && put(slot, PyLong_FromLongLong(value));
}

static ALWAYS_INLINE bool read_word(Reader *r, uint64_t *word)
{
    Py_ssize_t size = r->ndr64 ? 8 : 4;
    const uint8_t *bytes = take(r, size, size);
    if (bytes != NULL)
        *word = r->ndr64 ? bits_of(bytes, 8, false) : bits_of(bytes, 4, r->big);
    return bytes != NULL;
}

static ALWAYS_INLINE bool read_count(Reader *r, int64_t *count)
{
    uint64_t word;
    if (!read_word(r, &word) || (r->ndr64 && word > LARGEST_COUNT))
        return false;
    *count = (int64_t)word;
    return true;
}

static void reverse(uint8_t *bytes, int size)
{
    for (int i = 0; i < size / 2; i++) {
        uint8_t kept = bytes[i];
        bytes[i] = bytes[size - 1 - i];
        bytes[size - 1 - i] = kept;
    }
}

static bool read_opaque(Reader *r, const Type *type, PyObject **slot)
{
    const uint8_t *bytes = take(r, type->alignment, type->size);
    if (bytes == NULL || !put(slot, PyBytes_FromStringAndSize((const char *)bytes, type->size)))
        return false;
    if (r->big && type->content != BYTES) { /* context handles are attributes and a GUID */
        uint8_t *own = (uint8_t *)PyBytes_AS_STRING(*slot);
        if (type->content == HANDLE) {
            reverse(own, 4);
            own += 4;
        }
        reverse(own, 4);
        reverse(own + 4, 2);
        reverse(own + 6, 2);
    }
    return true;
}

/* A reference pointer is never NULL; its identifier may be any number. */
static ALWAYS_INLINE bool read_referent(Reader *r, const Type *pointer, PyObject **slot)
{
    uint64_t referent;
    return read_word(r, &referent) && put(slot, Py_NewRef(referent || !pointer->unique ? Py_True : Py_None));
}

static bool read_structure(Reader *r, const Record *record, PyObject **slot)
{
    int64_t count = 0;
    bool done = (record->trailing == NULL || read_count(r, &count)) && take(r, record->alignment, 0) != NULL
        && put(slot, record->class->tp_alloc(record->class, 0));
    if (record->recursive && ++r->depth > DEEPEST)
        return false;
    for (Py_ssize_t i = 0; done && i < record->absent_count; i++)
        *slot_of(*slot, record->absent[i]) = Py_NewRef(Py_None);
    for (const Member *m = record->members; done && m < record->members + record->member_count; m++)
        if (m->type->kind == POINTER)
            done = read_referent(r, m->type, slot_of(*slot, m->offset));
        else if (m == record->trailing)
            done = (!r->ndr64 || take(r, record->alignment, 0) != NULL) && satisfied(&m->type->size_is, *slot, count)
                && read_elements(r, m, m->type, count, *slot, slot_of(*slot, m->offset));
        else
            done = read_body(r, m, m->type, *slot, slot_of(*slot, m->offset));
    r->depth -= record->recursive;
    return done && (!r->ndr64 || take(r, record->alignment, 0) != NULL);
}

static bool read_structure_deferred(Reader *r, const Record *record, PyObject *o)
{
    bool done = true;
    if (record->recursive && ++r->depth > DEEPEST)
        return false;
    for (const Member *m = record->members; done && m < record->members + record->member_count; m++)
        if (m->type->kind != SCALAR && *slot_of(o, m->offset) != Py_None)
            done = read_deferred(r, m, m->type, o, slot_of(o, m->offset));
    r->depth -= record->recursive;
    return done;
}

static bool read_union(Reader *r, const Member *member, const Type *type, PyObject *owner)
{
    int64_t selected;
    const Arm *arm = selected_arm(type, member, owner, &selected);
    if (r->ndr64 && take(r, type->alignment, 0) == NULL)
        return false;
    const uint8_t *tag = take(r, type->size, type->size);
    if (r->ndr64 && take(r, type->alignment, 0) == NULL)
        return false;
    if (arm == NULL || tag == NULL || signed_of(bits_of(tag, type->size, r->big), type->format) != selected)
        return false;
    return arm->empty || read_body(r, &arm->member, arm->member.type, owner, slot_of(owner, arm->member.offset));
}

/* Decodes the part of a member that is in its construct. */
static bool read_body(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot)
{
    switch (type->kind) {
    case SCALAR:
        return read_scalar(r, member, type, slot);
    case OPAQUE:
        return read_opaque(r, type, slot);
    case POINTER:
        return read_referent(r, type, slot);
    case STRUCT:
        return read_structure(r, type->record, slot);
    case UNION:
        return read_union(r, member, type, owner);
    default:
        return false;
    }
}

static bool expect(Reader *r, const Count *count, PyObject *owner, int64_t value)
{
    if (!count->late)
        return satisfied(count, owner, value);
    if (r->late_count == LATE)
        return false;
    r->late[r->late_count].count = count;
    r->late[r->late_count++].value = value;
    return true;
}

static bool all_zero(const uint8_t *bytes, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool read_text(Reader *r, const Type *element, const uint8_t *bytes, Py_ssize_t units, PyObject **slot)
{
    int order = r->big ? 1 : -1;
    if (element->format != 'u')
        return put(slot, PyUnicode_DecodeLatin1((const char *)bytes, units, NULL));
    return put(slot, PyUnicode_DecodeUTF16((const char *)bytes, 2 * units, "surrogatepass", &order));
}

/* The count includes the terminator. An embedded one is an error, because programs disagree on the text after it. */
static bool read_string(Reader *r, const Type *element, int64_t count, PyObject **slot)
{
    const uint8_t *bytes = take(r, element->size, element->size * count);
    if (bytes == NULL || count == 0 || !all_zero(bytes + element->size * (count - 1), element->size))
        return false;
    for (int64_t i = 0; i < count - 1; i++)
        if (all_zero(bytes + element->size * i, element->size))
            return false;
    return read_text(r, element, bytes, count - 1, slot);
}

static bool read_elements(Reader *r, const Member *member, const Type *array, int64_t count, PyObject *owner,
                          PyObject **slot)
{
    const Type *element = array->to;
    if (element->kind == SCALAR && (element->size == 1 || element->format == 'u')) {
        const uint8_t *bytes = take(r, element->size, element->size * count);
        if (bytes == NULL)
            return false;
        if (element->format == 'u')
            return read_text(r, element, bytes, count, slot);
        return put(slot, PyBytes_FromStringAndSize((const char *)bytes, count));
    }
    if (array->minimum * count > r->size - r->at || !put(slot, PyList_New(count)))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!read_body(r, member, element, owner, &((PyListObject *)*slot)->ob_item[i]))
            return false;
    return true;
}

static bool read_array(Reader *r, const Member *member, const Type *array, PyObject *owner, PyObject **slot)
{
    int64_t maximum, offset, count;
    if (!read_count(r, &maximum))
        return false;
    count = maximum;
    if (array->varying && !(read_count(r, &offset) && read_count(r, &count) && offset == 0 && count <= maximum))
        return false;
    if (!expect(r, &array->size_is, owner, maximum) || (array->varying && !expect(r, &array->length_is, owner, count)))
        return false;
    if (array->string)
        return read_string(r, array->to, count, slot);
    return read_elements(r, member, array, count, owner, slot) && read_deferred(r, member, array, owner, slot);
}

/* Decodes a complete construct with its pointees. `null` is the value for an inner NULL pointer. */
static bool read_pointee(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot,
                         PyObject *null)
{
    if (type->kind == ARRAY)
        return read_array(r, member, type, owner, slot);
    if (type->kind != POINTER)
        return read_body(r, member, type, owner, slot) && read_deferred(r, member, type, owner, slot);
    if (!read_referent(r, type, slot))
        return false;
    if (!type->unique)
        return read_pointee(r, member, type->to, owner, slot, Py_None);
    if (*slot == Py_None)
        return put(slot, Py_NewRef(null));
    return read_pointee(r, member, type->to, owner, slot, the_null);
}

/* Decodes the pointees of a member. */
static bool read_deferred(Reader *r, const Member *member, const Type *type, PyObject *owner, PyObject **slot)
{
    const Arm *arm;
    int64_t selected;
    switch (type->kind) {
    case POINTER:
        return *slot == Py_None || read_pointee(r, member, type->to, owner, slot, type->unique ? the_null : Py_None);
    case STRUCT:
        return !type->record->has_pointers || read_structure_deferred(r, type->record, *slot);
    case UNION:
        if (!has_pointers(type))
            return true;
        arm = selected_arm(type, member, owner, &selected);
        if (arm->empty)
            return true;
        return read_deferred(r, &arm->member, arm->member.type, owner, slot_of(owner, arm->member.offset));
    case ARRAY:
        if (!has_pointers(type->to))
            return true;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(*slot); i++)
            if (!read_deferred(r, member, type->to, owner, &((PyListObject *)*slot)->ob_item[i]))
                return false;
        return true;
    default:
        return true;
    }
}

static bool read_argument(Reader *r, const Member *member, PyObject *owner)
{
    const Type *type = member->type;
    PyObject **slot = slot_of(owner, member->offset);
    int64_t value;
    if (type->kind == ARRAY || (type->kind == POINTER && !type->unique)) {
        if (!read_pointee(r, member, type->kind == ARRAY ? type : type->to, owner, slot, Py_None))
            return false;
    } else if (!read_body(r, member, type, owner, slot) || !read_deferred(r, member, type, owner, slot))
        return false;
    return type->kind != POINTER || !member->ranged || (integer_of(*slot, &value) && within(member, value));
}

/* Decodes the arguments in a stub. Returns NULL on failure, possibly with an exception set. */
static PyObject *decode(const Record *record, bool big, PyObject *stub)
{
    Reader r = {.bytes = (const uint8_t *)PyBytes_AS_STRING(stub), .size = PyBytes_GET_SIZE(stub), .big = big,
                .ndr64 = record->ndr64};
    PyObject *owner = record->class->tp_alloc(record->class, 0);
    bool done = owner != NULL;
    for (Py_ssize_t i = 0; done && i < record->absent_count; i++)
        *slot_of(owner, record->absent[i]) = Py_NewRef(Py_None);
    for (const Member *m = record->members; done && m < record->members + record->member_count; m++)
        done = read_argument(&r, m, owner);
    for (int i = 0; done && i < r.late_count; i++)
        done = satisfied(r.late[i].count, owner, r.late[i].value);
    if (done)
        return owner;
    Py_XDECREF(owner);
    return NULL;
}

/* -- encoding -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *bytes; /* allocated size may exceed the written data */
    Py_ssize_t at;
    uint32_t referent;
    bool ndr64;
    int depth;
} Writer;

static Py_ssize_t element_count(const Type *array, PyObject *value);
static bool write_elements(Writer *w, const Member *member, const Type *array, PyObject *owner, PyObject *value);
static bool write_body(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value);
static bool write_deferred(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value);
static bool write_pointee(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value);

/* Reserves space with this alignment and size; returns NULL on failure. */
static ALWAYS_INLINE uint8_t *give(Writer *w, Py_ssize_t alignment, Py_ssize_t size)
{
    Py_ssize_t begin = (w->at + alignment - 1) & ~(alignment - 1);
    if (size > PY_SSIZE_T_MAX / 4 - begin)
        return NULL;
    if (begin + size > PyBytes_GET_SIZE(w->bytes) && _PyBytes_Resize(&w->bytes, 2 * (begin + size)) < 0)
        return NULL; /* and w->bytes is NULL */
    uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(w->bytes);
    for (; w->at < begin; w->at++)
        bytes[w->at] = 0;
    w->at = begin + size;
    return bytes + begin;
}

static ALWAYS_INLINE bool write_bits(Writer *w, Py_ssize_t size, uint64_t bits)
{
    uint8_t *bytes = give(w, size, size);
    uint64_t little = htole64(bits);
    if (bytes != NULL)
        memcpy(bytes, &little, size);
    return bytes != NULL;
}

static bool write_count(Writer *w, Py_ssize_t count)
{
    return count <= UINT32_MAX && write_bits(w, w->ndr64 ? 8 : 4, count);
}

static ALWAYS_INLINE bool write_referent(Writer *w, bool given)
{
    uint32_t referent = w->referent;
    w->referent += given ? 4 : 0;
    return write_bits(w, w->ndr64 ? 8 : 4, given ? referent : 0);
}

static bool write_number(Writer *w, const Type *type, int64_t number)
{
    bool is_signed = type->format == 'b' || type->format == 'h' || type->format == 'i' || type->format == 'q';
    if (number < 0 && !is_signed)
        return false;
    if (type->size < 8) {
        int64_t span = (int64_t)1 << (8 * type->size - is_signed);
        if (number >= span || number < -span)
            return false;
    }
    return write_bits(w, type->size, (uint64_t)number);
}

static bool write_scalar(Writer *w, const Type *type, PyObject *value)
{
    if (value == NULL || !PyLong_Check(value))
        return false;
    if (type->format == 'Q') {
        uint64_t large = PyLong_AsUnsignedLongLong(value);
        return !(large == UINT64_MAX && PyErr_Occurred()) && write_bits(w, 8, large);
    }
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && write_number(w, type, number);
}

static bool write_bytes(Writer *w, Py_ssize_t alignment, PyObject *value)
{
    uint8_t *bytes = give(w, alignment, PyBytes_GET_SIZE(value));
    if (bytes != NULL)
        memcpy(bytes, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    return bytes != NULL;
}

static bool in_range(const Member *member, PyObject *value)
{
    int64_t number;
    return !member->ranged || (integer_of(value, &number) && within(member, number));
}

static bool write_trailing_count(Writer *w, const Record *record, PyObject *o)
{
    if (record->trailing == NULL)
        return true;
    const Type *array = record->trailing->type;
    Py_ssize_t count = element_count(array, *slot_of(o, record->trailing->offset));
    return count >= 0 && satisfied(&array->size_is, o, count) && write_count(w, count);
}

static bool write_structure(Writer *w, const Record *record, PyObject *o, bool deferred)
{
    bool done = o != NULL && Py_TYPE(o) == record->class;
    if (done && !deferred)
        done = write_trailing_count(w, record, o) && give(w, record->alignment, 0) != NULL;
    if (record->recursive && ++w->depth > DEEPEST)
        return false;
    for (const Member *m = record->members; done && m < record->members + record->member_count; m++) {
        PyObject *value = *slot_of(o, m->offset);
        if (!deferred && m == record->trailing)
            done = (!w->ndr64 || give(w, record->alignment, 0) != NULL) && write_elements(w, m, m->type, o, value);
        else if (!deferred)
            done = in_range(m, value) && write_body(w, m, m->type, o, value);
        else if (m->type->kind != SCALAR && !(m->type->unique && value == Py_None))
            done = write_deferred(w, m, m->type, o, value);
    }
    w->depth -= record->recursive;
    return done && (deferred || !w->ndr64 || give(w, record->alignment, 0) != NULL);
}

static bool write_union(Writer *w, const Member *member, const Type *type, PyObject *owner)
{
    int64_t selected;
    const Arm *arm = selected_arm(type, member, owner, &selected);
    if (arm == NULL || (w->ndr64 && give(w, type->alignment, 0) == NULL)
        || !write_number(w, type, selected)
        || (w->ndr64 && give(w, type->alignment, 0) == NULL))
        return false;
    return arm->empty || write_body(w, &arm->member, arm->member.type, owner, *slot_of(owner, arm->member.offset));
}

static bool write_body(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value)
{
    if (type->kind == UNION)
        return write_union(w, member, type, owner);
    if (value == NULL)
        return false;
    switch (type->kind) {
    case SCALAR:
        return write_scalar(w, type, value);
    case OPAQUE:
        return PyBytes_Check(value) && PyBytes_GET_SIZE(value) == type->size && write_bytes(w, type->alignment, value);
    case POINTER:
        return write_referent(w, !type->unique || value != Py_None);
    case STRUCT:
        return write_structure(w, type->record, value, false);
    default:
        return false;
    }
}

static Py_ssize_t units_of(PyObject *text, const Type *element)
{
    Py_ssize_t units = PyUnicode_GET_LENGTH(text);
    if (element->format == 'u' && PyUnicode_KIND(text) == PyUnicode_4BYTE_KIND)
        for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++)
            units += PyUnicode_READ_CHAR(text, i) > 0xFFFF;
    return units;
}

static void put_unit(uint8_t **bytes, Py_UCS4 unit)
{
    *(*bytes)++ = (uint8_t)unit;
    *(*bytes)++ = (uint8_t)(unit >> 8);
}

static bool write_text(Writer *w, const Type *array, PyObject *text, Py_ssize_t units)
{
    const Type *element = array->to;
    uint8_t *bytes = give(w, element->size, element->size * (units + array->string));
    if (bytes == NULL || (element->format != 'u' && PyUnicode_MAX_CHAR_VALUE(text) > 0xFF))
        return false;
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++) {
        Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
        if (c == 0 && array->string)
            return false;
        if (element->format != 'u')
            *bytes++ = (uint8_t)c;
        else if (c <= 0xFFFF)
            put_unit(&bytes, c);
        else {
            put_unit(&bytes, 0xD800 + ((c - 0x10000) >> 10));
            put_unit(&bytes, 0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
    if (array->string)
        memset(bytes, 0, element->size);
    return true;
}

static bool is_text(const Type *array)
{
    return array->string || (array->to->kind == SCALAR && array->to->format == 'u');
}

static bool is_bytes(const Type *array)
{
    return !is_text(array) && array->to->kind == SCALAR && array->to->size == 1;
}

/* Returns the number of transmitted elements, or -1 if the value is of another type. */
static Py_ssize_t element_count(const Type *array, PyObject *value)
{
    if (value == NULL)
        return -1;
    if (is_text(array))
        return PyUnicode_Check(value) ? units_of(value, array->to) + array->string : -1;
    return (is_bytes(array) ? PyBytes_Check(value) : PyList_Check(value)) ? Py_SIZE(value) : -1;
}

static bool write_elements(Writer *w, const Member *member, const Type *array, PyObject *owner, PyObject *value)
{
    if (is_text(array))
        return write_text(w, array, value, units_of(value, array->to));
    if (is_bytes(array))
        return write_bytes(w, 1, value);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++)
        if (!write_body(w, member, array->to, owner, PyList_GET_ITEM(value, i)))
            return false;
    return true;
}

static bool write_array(Writer *w, const Member *member, const Type *array, PyObject *owner, PyObject *value)
{
    Py_ssize_t count = element_count(array, value);
    int64_t maximum = count;
    if (count < 0)
        return false;
    if (array->varying) {
        if (array->size_is.expression != NULL && !value_of(array->size_is.expression, owner, &maximum))
            return false;
        if (count > maximum || !satisfied(&array->length_is, owner, count))
            return false;
    } else if (!satisfied(&array->size_is, owner, count))
        return false;
    if (!write_count(w, maximum) || (array->varying && !(write_count(w, 0) && write_count(w, count))))
        return false;
    return write_elements(w, member, array, owner, value) && write_deferred(w, member, array, owner, value);
}

static bool write_pointee(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value)
{
    if (type->kind == ARRAY)
        return write_array(w, member, type, owner, value);
    if (type->kind != POINTER)
        return write_body(w, member, type, owner, value) && write_deferred(w, member, type, owner, value);
    bool given = value != NULL && value != the_null && value != Py_None;
    return write_referent(w, given) && (!given || write_pointee(w, member, type->to, owner, value));
}

static bool write_deferred(Writer *w, const Member *member, const Type *type, PyObject *owner, PyObject *value)
{
    const Arm *arm;
    int64_t selected;
    switch (type->kind) {
    case POINTER:
        return (type->unique && value == Py_None) || write_pointee(w, member, type->to, owner, value);
    case STRUCT:
        return !type->record->has_pointers || write_structure(w, type->record, value, true);
    case UNION:
        arm = selected_arm(type, member, owner, &selected);
        if (arm->empty)
            return true;
        return write_deferred(w, &arm->member, arm->member.type, owner, *slot_of(owner, arm->member.offset));
    case ARRAY:
        for (Py_ssize_t i = 0; has_pointers(type->to) && i < PyList_GET_SIZE(value); i++)
            if (!write_deferred(w, member, type->to, owner, PyList_GET_ITEM(value, i)))
                return false;
        return true;
    default:
        return true;
    }
}

static bool write_argument(Writer *w, const Member *member, PyObject *owner)
{
    const Type *type = member->type;
    PyObject *value = *slot_of(owner, member->offset);
    if (!in_range(member, value))
        return false;
    if (type->kind == ARRAY || (type->kind == POINTER && !type->unique))
        return write_pointee(w, member, type->kind == ARRAY ? type : type->to, owner, value);
    return write_body(w, member, type, owner, value) && write_deferred(w, member, type, owner, value);
}

/* Encodes arguments to a stub. Returns NULL on failure, possibly with an exception set. */
static PyObject *encode(const Record *record, PyObject *owner)
{
    Writer w = {.bytes = PyBytes_FromStringAndSize(NULL, 256), .referent = FIRST_REFERENT, .ndr64 = record->ndr64};
    bool done = w.bytes != NULL;
    for (const Member *m = record->members; done && m < record->members + record->member_count; m++)
        done = write_argument(&w, m, owner);
    if (done && _PyBytes_Resize(&w.bytes, w.at) == 0)
        return w.bytes;
    Py_XDECREF(w.bytes);
    return NULL;
}

/* -- tables: tuples, as table_backend writes them ------------------------------------------------------------------ */

typedef struct { /* context in which a table is read */
    PyTypeObject *class;
    bool late, ndr64;
} Scope;

static const Type *parse_type(PyObject *table, const Scope *scope);

static void *made(size_t count, size_t size)
{
    void *memory = PyMem_Calloc(count ? count : 1, size);
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

static Py_ssize_t offset_of(PyTypeObject *class, PyObject *name)
{
    PyObject *descriptor = PyObject_GetAttr((PyObject *)class, name);
    Py_ssize_t offset = -1;
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
        offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else if (descriptor != NULL)
        PyErr_Format(PyExc_TypeError, "%R is not a slot of %R", name, class);
    Py_XDECREF(descriptor);
    return offset;
}

/* A number, the name of a member, or a tuple of an operator and its operands. */
static const Expression *parse_expression(PyObject *table, const Scope *scope)
{
    static const char operators[] = {[INVERTED] = '~', [BOTH] = '&', [SUM] = '+', [CHOICE] = '?'};
    static const int counts[] = {[INVERTED] = 1, [BOTH] = 2, [SUM] = 2, [CHOICE] = 3};
    int letter;
    Expression *e = made(1, sizeof(Expression));
    if (e == NULL)
        return NULL;
    if (PyLong_Check(table)) {
        e->number = PyLong_AsLongLong(table);
        return PyErr_Occurred() ? NULL : e;
    }
    if (!PyTuple_Check(table)) {
        e->operator = MEMBER;
        e->offset = offset_of(scope->class, table);
        return e->offset < 0 ? NULL : e;
    }
    PyObject *operands[3];
    if (!PyArg_ParseTuple(table, "CO|OO", &letter, &operands[0], &operands[1], &operands[2]))
        return NULL;
    for (e->operator = INVERTED; e->operator <= CHOICE && operators[e->operator] != letter; e->operator++)
        ;
    if (e->operator > CHOICE || PyTuple_GET_SIZE(table) != 1 + counts[e->operator]) {
        PyErr_Format(PyExc_ValueError, "%R is not a table of an expression", table);
        return NULL;
    }
    for (int i = 0; i < counts[e->operator]; i++)
        if ((e->operands[i] = parse_expression(operands[i], scope)) == NULL)
            return NULL;
    return e;
}

static bool parse_count(PyObject *table, const Scope *scope, Count *count)
{
    if (table == Py_None)
        return true;
    count->late = scope->late;
    return (count->expression = parse_expression(table, scope)) != NULL;
}

/* (name, type, selecting expression or None, range or None) */
static bool parse_member(PyObject *table, const Scope *scope, Member *member)
{
    PyObject *name, *type, *selector, *range;
    if (!PyArg_ParseTuple(table, "UOOO", &name, &type, &selector, &range))
        return false;
    member->ranged = range != Py_None;
    if (member->ranged && !PyArg_ParseTuple(range, "LL", &member->low, &member->high))
        return false;
    if (selector != Py_None && (member->selector = parse_expression(selector, scope)) == NULL)
        return false;
    member->type = parse_type(type, scope);
    if (member->type != NULL && member->type->kind != UNION) /* the arms of a union have slots, the union has none */
        member->offset = offset_of(scope->class, name);
    return member->type != NULL && member->offset >= 0;
}

static bool parse_arm(PyObject *table, const Scope *scope, Arm *arm)
{
    PyObject *labels, *member;
    if (!PyArg_ParseTuple(table, "O!O", &PyTuple_Type, &labels, &member))
        return false;
    arm->label_count = PyTuple_GET_SIZE(labels);
    arm->labels = made(arm->label_count, sizeof(int64_t));
    if (arm->labels == NULL)
        return false;
    for (Py_ssize_t i = 0; i < arm->label_count; i++)
        arm->labels[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(labels, i));
    arm->empty = member == Py_None;
    return !PyErr_Occurred() && (arm->empty || parse_member(member, scope, &arm->member));
}

static bool parse_format(Type *type, PyObject *table)
{
    static const char formats[] = "bBhHuiIqQ";
    static const Py_ssize_t sizes[] = {1, 1, 2, 2, 2, 4, 4, 8, 8};
    const char *format = PyUnicode_AsUTF8(table);
    const char *found = format == NULL || strlen(format) != 1 ? NULL : strchr(formats, *format);
    if (found == NULL) {
        PyErr_Format(PyExc_ValueError, "%R is not a format of a scalar", table);
        return false;
    }
    type->kind = SCALAR;
    type->format = *found;
    type->size = type->alignment = sizes[found - formats];
    return true;
}

static bool parse_union(PyObject *arms, const Scope *scope, Type *type)
{
    type->kind = UNION;
    type->arm_count = PyTuple_GET_SIZE(arms);
    type->arms = made(type->arm_count, sizeof(Arm));
    for (Py_ssize_t i = 0; type->arms != NULL && i < type->arm_count; i++)
        if (!parse_arm(PyTuple_GET_ITEM(arms, i), scope, &type->arms[i]))
            return false;
    return type->arms != NULL;
}

static Record *record_of(PyObject *class, bool ndr64)
{
    PyObject *capsule = PyDict_GetItemWithError(records[ndr64], class);
    if (capsule != NULL)
        return PyCapsule_GetPointer(capsule, NULL);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_LookupError, "there is no table of %R", class);
    return NULL;
}

/* A scalar is its format, a structure its class, a type without a table None, anything else a tuple that begins with a
   letter. */
static bool parse_into(Type *type, PyObject *table, const Scope *scope)
{
    int letter, content, unique, varying, string;
    Py_ssize_t arms_alignment;
    PyObject *first, *second, *third;
    if (table == Py_None)
        return true;
    if (PyUnicode_Check(table))
        return parse_format(type, table);
    if (PyType_Check(table)) {
        type->kind = STRUCT;
        return (type->record = record_of(table, scope->ndr64)) != NULL;
    }
    if (!PyTuple_Check(table) || !PyTuple_GET_SIZE(table) || !PyUnicode_Check(first = PyTuple_GET_ITEM(table, 0))) {
        PyErr_Format(PyExc_TypeError, "%R is not a table of a type", table);
        return false;
    }
    switch (PyUnicode_READ_CHAR(first, 0)) {
    case 'o':
        type->kind = OPAQUE;
        if (!PyArg_ParseTuple(table, "Cnni", &letter, &type->size, &type->alignment, &content))
            return false;
        type->content = content;
        return true;
    case 'p':
        type->kind = POINTER;
        if (!PyArg_ParseTuple(table, "CpO", &letter, &unique, &first))
            return false;
        type->unique = unique;
        return (type->to = parse_type(first, scope)) != NULL;
    case 'a':
        type->kind = ARRAY;
        if (!PyArg_ParseTuple(table, "COOOppn", &letter, &first, &second, &third, &varying, &string, &type->minimum))
            return false;
        type->varying = varying;
        type->string = string;
        return (type->to = parse_type(first, scope)) != NULL && parse_count(second, scope, &type->size_is)
            && parse_count(third, scope, &type->length_is);
    case 'u':
        if (!PyArg_ParseTuple(table, "CUO!n", &letter, &second, &PyTuple_Type, &first, &arms_alignment)
            || !parse_format(type, second))
            return false;
        if (arms_alignment > type->alignment)
            type->alignment = arms_alignment;
        return parse_union(first, scope, type);
    default:
        PyErr_Format(PyExc_ValueError, "%R is not a table of a type", table);
        return false;
    }
}

static const Type *parse_type(PyObject *table, const Scope *scope)
{
    Type *type = made(1, sizeof(Type));
    return type != NULL && parse_into(type, table, scope) ? type : NULL;
}

static bool fill_record(Record *record, PyObject *members, PyObject *absent, bool late)
{
    const Scope scope = {.class = record->class, .late = late, .ndr64 = record->ndr64};
    record->member_count = PyTuple_GET_SIZE(members);
    record->absent_count = PyTuple_GET_SIZE(absent);
    record->members = made(record->member_count, sizeof(Member));
    record->absent = made(record->absent_count, sizeof(Py_ssize_t));
    if (record->members == NULL || record->absent == NULL)
        return false;
    for (Py_ssize_t i = 0; i < record->absent_count; i++)
        if ((record->absent[i] = offset_of(record->class, PyTuple_GET_ITEM(absent, i))) < 0)
            return false;
    for (Py_ssize_t i = 0; i < record->member_count; i++)
        if (!parse_member(PyTuple_GET_ITEM(members, i), &scope, &record->members[i]))
            return false;
    const Member *last = record->members + record->member_count - 1;
    if (!late && record->member_count && last->type->kind == ARRAY)
        record->trailing = last;
    return true;
}

/* -- Python interface ------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Record *record;
    PyObject *interpreted;
    char order; /* '<' or '>': a decoder; 0: an encoder */
} Codec;

static PyObject *direct(PyObject *self, PyObject *argument)
{
    Codec *codec = (Codec *)self;
    PyObject *result = NULL;
    if (codec->order && PyBytes_CheckExact(argument))
        result = decode(codec->record, codec->order == '>', argument);
    else if (!codec->order && Py_TYPE(argument) == codec->record->class)
        result = encode(codec->record, argument);
    if (result != NULL)
        return result;
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *call_codec(PyObject *self, PyObject *const *arguments, size_t count, PyObject *keywords)
{
    if (PyVectorcall_NARGS(count) != 1 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "a codec takes one argument");
        return NULL;
    }
    PyObject *result = direct(self, arguments[0]);
    if (result != Py_None)
        return result;
    Py_DECREF(result);
    return PyObject_CallOneArg(((Codec *)self)->interpreted, arguments[0]);
}

static void free_codec(PyObject *self)
{
    Py_XDECREF(((Codec *)self)->interpreted);
    PyObject_Free(self);
}

static PyMethodDef codec_methods[] = {
    {"direct", direct, METH_O, "What the engine makes of a stub or of arguments; None where it stops."},
    {NULL},
};

static PyMemberDef codec_members[] = {
    {"interpreted", T_OBJECT, offsetof(Codec, interpreted), READONLY, "The codec that takes what the engine refuses."},
    {NULL},
};

static PyTypeObject Codec_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "msrpc.ndr.engine.Codec",
    .tp_doc = "Decodes or encodes the arguments of one operation.",
    .tp_basicsize = sizeof(Codec),
    .tp_dealloc = free_codec,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Codec, call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_methods = codec_methods,
    .tp_members = codec_members,
};

/* Tables may refer to structures that are declared after them, so these are announced first. */
static PyObject *announce(PyObject *module, PyObject *arguments)
{
    PyTypeObject *class;
    Py_ssize_t alignment;
    int recursive, pointers, ndr64;
    if (!PyArg_ParseTuple(arguments, "O!nppp", &PyType_Type, &class, &alignment, &recursive, &pointers, &ndr64))
        return NULL;
    Record *record = made(1, sizeof(Record));
    if (record == NULL)
        return NULL;
    record->class = (PyTypeObject *)Py_NewRef(class);
    record->alignment = alignment;
    record->recursive = recursive;
    record->has_pointers = pointers;
    record->ndr64 = ndr64;
    PyObject *capsule = PyCapsule_New(record, NULL, NULL);
    if (capsule == NULL || PyDict_SetItem(records[ndr64], (PyObject *)class, capsule) < 0) {
        Py_XDECREF(capsule);
        return NULL;
    }
    Py_DECREF(capsule);
    Py_RETURN_NONE;
}

static PyObject *declare(PyObject *module, PyObject *arguments)
{
    PyObject *class, *members, *absent;
    int ndr64;
    if (!PyArg_ParseTuple(arguments, "O!O!O!p", &PyType_Type, &class, &PyTuple_Type, &members, &PyTuple_Type, &absent,
                          &ndr64))
        return NULL;
    Record *record = record_of(class, ndr64);
    if (record == NULL || !fill_record(record, members, absent, false))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *codec(PyObject *module, PyObject *arguments)
{
    PyObject *interpreted, *class, *members, *absent;
    const char *order;
    int ndr64 = 0;
    if (!PyArg_ParseTuple(arguments, "sOO!O!O!|p", &order, &interpreted, &PyType_Type, &class, &PyTuple_Type, &members,
                          &PyTuple_Type, &absent, &ndr64))
        return NULL;
    Record *record = made(1, sizeof(Record));
    if (record == NULL)
        return NULL;
    record->class = (PyTypeObject *)Py_NewRef(class);
    record->alignment = 1;
    record->ndr64 = ndr64;
    if (!fill_record(record, members, absent, true))
        return NULL;
    Codec *made_codec = PyObject_New(Codec, &Codec_Type);
    if (made_codec == NULL)
        return NULL;
    made_codec->call = call_codec;
    made_codec->record = record;
    made_codec->interpreted = Py_NewRef(interpreted);
    made_codec->order = *order;
    return (PyObject *)made_codec;
}

static PyMethodDef functions[] = {
    {"announce", announce, METH_VARARGS, "announce(class, alignment, recursive, has_pointers, ndr64)"},
    {"declare", declare, METH_VARARGS, "declare(class, members, absent, ndr64)"},
    {"codec", codec, METH_VARARGS, 
     "codec(order, interpreted, class, members, absent, ndr64=False); order \"\": an encoder"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "msrpc.ndr.engine", "NDR 2.0 and NDR64 by tables.", -1, functions,
};

PyMODINIT_FUNC PyInit_engine(void)
{
    PyObject *runtime = PyImport_ImportModule("msrpc.ndr.runtime");
    if (runtime == NULL)
        return NULL;
    the_null = PyObject_GetAttrString(runtime, "NULL");
    Py_DECREF(runtime);
    records[0] = PyDict_New();
    records[1] = PyDict_New();
    if (the_null == NULL || records[0] == NULL || records[1] == NULL || PyType_Ready(&Codec_Type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Codec", (PyObject *)&Codec_Type) < 0)
        Py_CLEAR(module);
    return module;
}
