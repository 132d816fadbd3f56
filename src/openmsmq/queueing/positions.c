/* The positions of a queue: hash tables that map lookup identifiers to the places of messages.

   `openmsmq.queueing.entries` has the pure Python version, which is used if this module is not compiled. A message
   takes 20 bytes in a table that is half to four fifths full; a dictionary of integers takes four times as much.

   The event loop must not wait while a queue of millions of messages grows. So a large table is divided into two by the
   next bit of the hash (extendible hashing): a change moves the entries of at most one table, in 0.2 ms. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "../store/column.h"
#include "captured.h"

typedef struct {
    uint64_t key, place; /* for a message that is held in memory, the place is a reference to it */
} Slot;

/* Open addressing, linear probing. In `sizes`, the two highest numbers are the markers EMPTY and HELD. */
typedef struct {
    Slot *slots;
    uint32_t *sizes;
    size_t capacity, count;
    size_t most;    /* entries before it is divided */
    unsigned depth; /* number of leading hash bits that all of its keys have in common */
} Table;

typedef struct {
    PyObject_HEAD
    Table **directory; /* by the first `depth` bits of the hash; a table of less depth has several entries in a row */
    unsigned depth;
    size_t count;
} Positions;

typedef struct {
    Table *table;
    size_t at;
} Place;

static const uint32_t EMPTY = UINT32_MAX, HELD = UINT32_MAX - 1;
static const uint64_t SEQUENCE = (UINT64_C(1) << 56) - 1;
static const size_t LEAST = 8, LARGEST = 1 << 14; /* slots of a table */
enum { MOST_DEPTH = 24 };

/* -- one table --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(uint64_t key)
{
    return key * UINT64_C(0x9E3779B97F4A7C15);
}

/* The home slot of a key, taken from the hash bits after those that all keys of the table have in common. */
static size_t home_of(const Table *table, uint64_t key)
{
    return (size_t)((unsigned __int128)(hash_of(key) << table->depth) * table->capacity >> 64);
}

static size_t next_to(const Table *table, size_t at)
{
    return at + 1 == table->capacity ? 0 : at + 1;
}

/* The slot of a key, or the empty one where it belongs. */
static size_t find_in(const Table *table, uint64_t key)
{
    size_t at = home_of(table, key);
    while (table->sizes[at] != EMPTY && table->slots[at].key != key)
        at = next_to(table, at);
    return at;
}

static bool is_full(const Table *table)
{
    return table->count >= table->capacity / 5 * 4;
}

/* An empty table for keys whose hash begins with the first `depth` bits of `hash`; NULL if there is no memory. */
static Table *new_table(size_t capacity, unsigned depth, uint64_t hash)
{
    Table *table = PyMem_RawMalloc(sizeof(Table));
    Slot *slots = PyMem_RawMalloc(capacity * sizeof(Slot));
    uint32_t *sizes = PyMem_RawMalloc(capacity * sizeof(uint32_t));
    if (table == NULL || slots == NULL || sizes == NULL) {
        PyMem_RawFree(table);
        PyMem_RawFree(slots);
        PyMem_RawFree(sizes);
        PyErr_NoMemory();
        return NULL;
    }
    memset(sizes, 0xFF, capacity * sizeof(uint32_t));
    /* Sequential keys fill all tables evenly. To avoid dividing them all at the same time, each table has a different
       limit, three to four fifths of its slots. */
    uint64_t prefix = depth ? hash >> (64 - depth) : 0;
    size_t variety = (size_t)(prefix * 0x85EBCA6Bu >> 8 & 0xFF);
    *table = (Table){slots, sizes, capacity, 0, LARGEST / 5 * 3 + LARGEST / 5 * variety / 0xFF, depth};
    return table;
}

static void free_table(Table *table)
{
    PyMem_RawFree(table->slots);
    PyMem_RawFree(table->sizes);
    PyMem_RawFree(table);
}

/* Put an entry into a table that has a free slot and does not have the key. */
static void add(Table *table, Slot slot, uint32_t size)
{
    size_t to = find_in(table, slot.key);
    table->slots[to] = slot;
    table->sizes[to] = size;
    table->count++;
}

static bool resize(Table *table, size_t capacity)
{
    Table *other = new_table(capacity, table->depth, 0);
    if (other == NULL)
        return false;
    for (size_t at = 0; at < table->capacity; at++)
        if (table->sizes[at] != EMPTY)
            add(other, table->slots[at], table->sizes[at]);
    Table old = *table;
    table->slots = other->slots, table->sizes = other->sizes, table->capacity = capacity;
    other->slots = old.slots, other->sizes = old.sizes;
    free_table(other);
    return true;
}

/* Empty a slot, and move back the entries that were put after it because it was occupied. */
static void vacate(Table *table, size_t at)
{
    for (size_t next = next_to(table, at); table->sizes[next] != EMPTY; next = next_to(table, next)) {
        size_t home = home_of(table, table->slots[next].key);
        size_t past = next >= home ? next - home : next + table->capacity - home;
        size_t gap = next >= at ? next - at : next + table->capacity - at;
        if (past >= gap) {
            table->slots[at] = table->slots[next];
            table->sizes[at] = table->sizes[next];
            at = next;
        }
    }
    table->sizes[at] = EMPTY;
    table->count--;
}

/* -- all tables -------------------------------------------------------------------------------------------------- */

static size_t directory_size(const Positions *self)
{
    return self->directory == NULL ? 0 : (size_t)1 << self->depth;
}

static size_t index_of(const Positions *self, uint64_t hash)
{
    return self->depth ? (size_t)(hash >> (64 - self->depth)) : 0;
}

/* Return the table at `index` and advance `index` to the next one; NULL after the last one. Start with `index` 0. */
static Table *next_table(const Positions *self, size_t *index)
{
    if (*index >= directory_size(self))
        return NULL;
    Table *table = self->directory[*index];
    *index += (size_t)1 << (self->depth - table->depth);
    return table;
}

/* The place of a key, or the empty slot where it belongs; `table` is NULL if there are no tables. */
static Place find(const Positions *self, uint64_t key)
{
    if (self->directory == NULL)
        return (Place){NULL, 0};
    Table *table = self->directory[index_of(self, hash_of(key))];
    return (Place){table, find_in(table, key)};
}

static bool is_there(Place place)
{
    return place.table != NULL && place.table->sizes[place.at] != EMPTY;
}

static uint32_t *size_of_place(Place place)
{
    return place.table->sizes + place.at;
}

static Slot *slot_of_place(Place place)
{
    return place.table->slots + place.at;
}

/* The number of slots with which a table of `count` entries is a little more than half full. */
static size_t room_for(size_t count)
{
    return count * 2 - count / 8 + LEAST;
}

/* Create tables for `count` entries; there must be none yet. */
static bool begin(Positions *self, size_t count)
{
    unsigned depth = 0;
    while (count >> depth > LARGEST / 2 && depth < MOST_DEPTH)
        depth++;
    size_t tables = (size_t)1 << depth, made = 0, capacity = room_for(count >> depth);
    Table **directory = PyMem_RawMalloc(tables * sizeof *directory);
    if (directory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (; made < tables; made++) {
        directory[made] = new_table(capacity, depth, depth ? (uint64_t)made << (64 - depth) : 0);
        if (directory[made] == NULL)
            break;
    }
    if (made < tables) {
        while (made--)
            free_table(directory[made]);
        PyMem_RawFree(directory);
        return false;
    }
    self->directory = directory;
    self->depth = depth;
    return true;
}

static bool double_directory(Positions *self)
{
    size_t size = directory_size(self);
    Table **directory = PyMem_RawMalloc(2 * size * sizeof *directory);
    if (directory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t index = 0; index < size; index++)
        directory[2 * index] = directory[2 * index + 1] = self->directory[index];
    PyMem_RawFree(self->directory);
    self->directory = directory;
    self->depth++;
    return true;
}

/* Replace the table for this hash by two. */
static bool divide(Positions *self, Table *table, uint64_t hash)
{
    if (table->depth == self->depth && !double_directory(self))
        return false;
    unsigned depth = table->depth + 1;
    uint64_t bit = UINT64_C(1) << (64 - depth), low = hash & ~(bit - 1) & ~bit;
    size_t seconds = 0;
    for (size_t at = 0; at < table->capacity; at++)
        seconds += table->sizes[at] != EMPTY && hash_of(table->slots[at].key) & bit;
    Table *first = new_table(room_for(table->count - seconds), depth, low);
    Table *second = first == NULL ? NULL : new_table(room_for(seconds), depth, low | bit);
    if (second == NULL) {
        if (first != NULL)
            free_table(first);
        return false;
    }
    for (size_t at = 0; at < table->capacity; at++)
        if (table->sizes[at] != EMPTY)
            add(hash_of(table->slots[at].key) & bit ? second : first, table->slots[at], table->sizes[at]);
    size_t index = index_of(self, low), each = (size_t)1 << (self->depth - depth);
    for (size_t i = 0; i < each; i++) {
        self->directory[index + i] = first;
        self->directory[index + each + i] = second;
    }
    free_table(table);
    return true;
}

/* Make sure that the table of a key has a free slot for it. */
static bool make_room(Positions *self, uint64_t key)
{
    if (self->directory == NULL && !begin(self, 0))
        return false;
    uint64_t hash = hash_of(key);
    for (;;) {
        Table *table = self->directory[index_of(self, hash)];
        bool may_divide = table->depth < MOST_DEPTH;
        if (!is_full(table) && (table->count < table->most || !may_divide))
            return true;
        /* If all entries have the next bit in common, the new table is as full: divide it again. */
        if (table->count >= table->most && may_divide ? !divide(self, table, hash)
                                                      : !resize(table, table->capacity + table->capacity / 2 + LEAST))
            return false;
    }
}

/* Shrink a table with few entries; a failure is ignored. */
static void shrink(Table *table)
{
    size_t least = table->depth ? 2 * LEAST : 64 * LEAST;
    if (table->capacity > least && table->count < table->capacity / 8) {
        if (!resize(table, table->count * 2 + LEAST))
            PyErr_Clear();
    }
}

/* An empty queue needs no table. */
static void end(Positions *self)
{
    size_t index = 0;
    for (Table *table; (table = next_table(self, &index)) != NULL;)
        free_table(table);
    PyMem_RawFree(self->directory);
    self->directory = NULL;
    self->depth = 0;
}

/* -- entries as objects ------------------------------------------------------------------------------------------ */

static bool key_of(PyObject *object, uint64_t *key)
{
    _Static_assert(sizeof(unsigned long) == sizeof(uint64_t), "the conversion to unsigned long long takes four times as long");
    *key = PyLong_AsUnsignedLong(object);
    return *key != (uint64_t)-1 || !PyErr_Occurred();
}

/* `size << 64 | place` for a stored message, otherwise the message object. */
static PyObject *entry_at(Place at)
{
    const Slot *slot = slot_of_place(at);
    if (*size_of_place(at) == HELD)
        return Py_NewRef((PyObject *)(uintptr_t)slot->place);
    uint64_t words[2] = {slot->place, *size_of_place(at)};
#if PY_VERSION_HEX >= 0x030D0000
    return PyLong_FromNativeBytes(words, 16, Py_ASNATIVEBYTES_LITTLE_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER);
#else
    return _PyLong_FromByteArray((const unsigned char *)words, 16, 1, 0);
#endif
}

/* The reverse conversion; takes a reference to a message object. */
static bool parts_of(PyObject *entry, uint64_t *place, uint32_t *size)
{
    if (!PyLong_CheckExact(entry)) {
        *place = (uint64_t)(uintptr_t)Py_NewRef(entry);
        *size = HELD;
        return true;
    }
    uint64_t words[2];
    /* The two functions report a negative or too large integer differently. */
#if PY_VERSION_HEX >= 0x030D0000
    Py_ssize_t used = PyLong_AsNativeBytes(
        entry, words, 16,
        Py_ASNATIVEBYTES_LITTLE_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER | Py_ASNATIVEBYTES_REJECT_NEGATIVE);
    bool fits = used >= 0 && used <= 16;
    PyObject *unfit = PyExc_ValueError;
#else
    bool fits = _PyLong_AsByteArray((PyLongObject *)entry, (unsigned char *)words, 16, 1, 0) == 0;
    PyObject *unfit = PyExc_OverflowError;
#endif
    if (!fits && PyErr_Occurred() && !PyErr_ExceptionMatches(unfit))
        return false;
    if (!fits || words[1] >= HELD) {
        PyErr_SetString(PyExc_OverflowError, "an entry has a place of 64 bits and a size below 2**32 - 2");
        return false;
    }
    *place = words[0];
    *size = (uint32_t)words[1];
    return true;
}

static PyObject *held_at(Place at)
{
    return *size_of_place(at) == HELD ? (PyObject *)(uintptr_t)slot_of_place(at)->place : NULL;
}

static void forget(Positions *self, Place at)
{
    PyObject *held = held_at(at);
    vacate(at.table, at.at);
    self->count--;
    if (self->count)
        shrink(at.table);
    else if (self->depth || at.table->capacity > 64 * LEAST) /* a small table is reused */
        end(self);
    Py_XDECREF(held);
}

static bool put(Positions *self, uint64_t key, uint64_t place, uint32_t size)
{
    Place at = find(self, key);
    if (is_there(at)) {
        PyObject *held = held_at(at);
        slot_of_place(at)->place = place;
        *size_of_place(at) = size;
        Py_XDECREF(held);
        return true;
    }
    if (!make_room(self, key))
        return false;
    add(self->directory[index_of(self, hash_of(key))], (Slot){key, place}, size);
    self->count++;
    return true;
}

static bool put_object(Positions *self, PyObject *key_object, PyObject *entry)
{
    uint64_t key, place;
    uint32_t size;
    if (!key_of(key_object, &key) || !parts_of(entry, &place, &size))
        return false;
    if (put(self, key, place, size))
        return true;
    if (size == HELD)
        Py_DECREF(entry);
    return false;
}

/* -- as a mapping ------------------------------------------------------------------------------------------------ */

static Py_ssize_t length(PyObject *object)
{
    return (Py_ssize_t)((Positions *)object)->count;
}

/* Find a key. Returns false with an exception set if it is missing. */
static bool look_up(const Positions *self, PyObject *key_object, Place *at)
{
    uint64_t key;
    if (!key_of(key_object, &key))
        return false;
    *at = find(self, key);
    if (is_there(*at))
        return true;
    PyErr_SetObject(PyExc_KeyError, key_object);
    return false;
}

enum { AHEAD = 16 };

/* Find the key at `at` of a list. In a long queue, the slots of most keys are in none of the processor's caches, so those
   of a key further on are requested meanwhile. */
static bool look_up_next(const Positions *self, PyObject *keys, Py_ssize_t at, Place *place)
{
    if (self->directory != NULL && at + AHEAD < PyList_GET_SIZE(keys)) {
        uint64_t key;
        if (key_of(PyList_GET_ITEM(keys, at + AHEAD), &key)) {
            const Table *table = self->directory[index_of(self, hash_of(key))];
            size_t home = home_of(table, key);
            __builtin_prefetch(table->sizes + home);
            __builtin_prefetch(table->slots + home);
        } else
            PyErr_Clear(); /* reported when it is looked up */
    }
    return look_up(self, PyList_GET_ITEM(keys, at), place);
}

static PyObject *subscript(PyObject *object, PyObject *key_object)
{
    Place at;
    return look_up((Positions *)object, key_object, &at) ? entry_at(at) : NULL;
}

static int assign(PyObject *object, PyObject *key_object, PyObject *entry)
{
    Positions *self = (Positions *)object;
    if (entry != NULL)
        return put_object(self, key_object, entry) ? 0 : -1;
    Place at;
    if (!look_up(self, key_object, &at))
        return -1;
    forget(self, at);
    return 0;
}

static int contains(PyObject *object, PyObject *key_object)
{
    Positions *self = (Positions *)object;
    uint64_t key;
    if (!key_of(key_object, &key))
        return -1;
    return is_there(find(self, key));
}

static PyObject *get(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Positions *self = (Positions *)object;
    uint64_t key;
    if (count < 1 || count > 2)
        return PyErr_Format(PyExc_TypeError, "get takes a key, and what to return without it");
    if (!key_of(arguments[0], &key))
        return NULL;
    Place at = find(self, key);
    if (is_there(at))
        return entry_at(at);
    return Py_NewRef(count == 2 ? arguments[1] : Py_None);
}

static PyObject *pop(PyObject *object, PyObject *key_object)
{
    Positions *self = (Positions *)object;
    Place at;
    PyObject *entry = look_up(self, key_object, &at) ? entry_at(at) : NULL;
    if (entry != NULL)
        forget(self, at);
    return entry;
}

/* The operations for each message, without a 128-bit integer: */

static PyObject *place(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    uint64_t key, location, size;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "place takes a key, a location and a size");
    if (!key_of(arguments[0], &key) || !key_of(arguments[1], &location) || !key_of(arguments[2], &size))
        return NULL;
    if (size >= HELD)
        return PyErr_Format(PyExc_OverflowError, "an entry has a size below 2**32 - 2");
    if (!put((Positions *)object, key, location, (uint32_t)size))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *location_at(Place at)
{
    if (*size_of_place(at) == HELD)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(slot_of_place(at)->place);
}

static PyObject *location(PyObject *object, PyObject *key_object)
{
    Place at;
    return look_up((Positions *)object, key_object, &at) ? location_at(at) : NULL;
}

static bool is_list(PyObject *keys)
{
    if (PyList_Check(keys))
        return true;
    PyErr_Format(PyExc_TypeError, "a list is needed, not %s", Py_TYPE(keys)->tp_name);
    return false;
}

static PyObject *locations(PyObject *object, PyObject *keys)
{
    PyObject *found = is_list(keys) ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(keys); i++) {
        Place at;
        PyObject *one = look_up_next((Positions *)object, keys, i, &at) ? location_at(at) : NULL;
        if (one == NULL || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

static PyObject *name_size; /* "size" */

static PyObject *size_at(Place at)
{
    PyObject *held = held_at(at);
    return held == NULL ? PyLong_FromUnsignedLong(*size_of_place(at)) : PyObject_GetAttr(held, name_size);
}

static PyObject *size(PyObject *object, PyObject *key_object)
{
    Place at;
    return look_up((Positions *)object, key_object, &at) ? size_at(at) : NULL;
}

static PyObject *remove_one(PyObject *object, PyObject *key_object)
{
    Positions *self = (Positions *)object;
    Place at;
    PyObject *size = look_up(self, key_object, &at) ? size_at(at) : NULL;
    if (size != NULL)
        forget(self, at);
    return size;
}

/* Add the bytes of a message to `volume`. Returns false with an exception set on failure. */
static bool add_size(Place at, uint64_t *volume)
{
    if (held_at(at) == NULL) {
        *volume += *size_of_place(at);
        return true;
    }
    PyObject *size = size_at(at);
    *volume += size == NULL ? 0 : PyLong_AsUnsignedLongLong(size);
    Py_XDECREF(size);
    return !PyErr_Occurred();
}

static PyObject *volume(PyObject *object, PyObject *keys)
{
    uint64_t volume = 0;
    Place at;
    if (!is_list(keys))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++)
        if (!look_up_next((Positions *)object, keys, i, &at) || !add_size(at, &volume))
            return NULL;
    return PyLong_FromUnsignedLongLong(volume);
}

static PyObject *remove_all(PyObject *object, PyObject *keys)
{
    Positions *self = (Positions *)object;
    uint64_t volume = 0;
    Place at;
    if (!is_list(keys))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        if (!look_up_next(self, keys, i, &at) || !add_size(at, &volume))
            return NULL;
        forget(self, at);
    }
    return PyLong_FromUnsignedLongLong(volume);
}

static PyObject *update(PyObject *object, PyObject *mapping)
{
    Positions *self = (Positions *)object;
    PyObject *key, *entry;
    Py_ssize_t at = 0;
    if (!PyDict_Check(mapping))
        return PyErr_Format(PyExc_TypeError, "a dictionary is needed, not %s", Py_TYPE(mapping)->tp_name);
    while (PyDict_Next(mapping, &at, &key, &entry))
        if (!put_object(self, key, entry))
            return NULL;
    Py_RETURN_NONE;
}

static PyObject *clear(PyObject *object, PyObject *nothing)
{
    Positions *self = (Positions *)object, old = *self;
    size_t index = 0;
    self->directory = NULL, self->depth = 0, self->count = 0;
    for (Table *table; (table = next_table(&old, &index)) != NULL;)
        for (size_t at = 0; at < table->capacity; at++)
            Py_XDECREF(held_at((Place){table, at}));
    end(&old);
    Py_RETURN_NONE;
}

static int ascending(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* An iterator over the present keys in ascending order. */
static PyObject *iterate(PyObject *object)
{
    Positions *self = (Positions *)object;
    uint64_t *keys = PyMem_RawMalloc((self->count + 1) * sizeof(uint64_t));
    size_t count = 0, index = 0;
    if (keys == NULL)
        return PyErr_NoMemory();
    for (Table *table; (table = next_table(self, &index)) != NULL;)
        for (size_t at = 0; at < table->capacity; at++)
            if (table->sizes[at] != EMPTY)
                keys[count++] = table->slots[at].key;
    qsort(keys, count, sizeof(uint64_t), ascending);
    PyObject *list = PyList_New((Py_ssize_t)count), *iterator = NULL;
    for (size_t at = 0; list != NULL && at < count; at++) {
        PyObject *key = PyLong_FromUnsignedLongLong(keys[at]);
        if (key == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)at, key);
    }
    PyMem_RawFree(keys);
    if (list != NULL)
        iterator = PyObject_GetIter(list);
    Py_XDECREF(list);
    return iterator;
}

/* -- many at once ------------------------------------------------------------------------------------------------ */

typedef struct { /* a message in the store, as it is captured */
    uint64_t key, place, size;
} Captured;

typedef struct {
    uint64_t key, place, word;
    uint32_t size;
} Row;

typedef struct {
    uint64_t key, deadline;
} Due;

typedef struct { /* the same as in `deadline_heap.c` */
    uint64_t number, key, deadline;
} Deadline;

static int by_key(const void *one, const void *other)
{
    return ascending(one, other); /* the key is the first member of all these structures */
}

/* A copy of the entries of messages in the store, in no order: the input of `columns`, which runs later. */
static PyObject *capture(PyObject *object, PyObject *room)
{
    const Positions *self = (Positions *)object;
    Captured *rows;
    PyObject *captured = new_capture(room, (Py_ssize_t)(self->count * sizeof(Captured)), &rows);
    if (captured == NULL)
        return NULL;
    size_t count = 0, index = 0;
    for (Table *table; (table = next_table(self, &index)) != NULL;)
        for (size_t at = 0; at < table->capacity; at++)
            if (table->sizes[at] != EMPTY && table->sizes[at] != HELD)
                rows[count++] = (Captured){table->slots[at].key, table->slots[at].place, table->sizes[at]};
    if (count == self->count)
        return captured;
    PyObject *part = PySequence_GetSlice(captured, 0, (Py_ssize_t)(count * sizeof(Captured)));
    Py_DECREF(captured);
    return part;
}

/* Memory whose pages are present: the kernel creates the pages of new memory one by one at the first access, which
   takes longer than copying the data. Other threads run meanwhile. */
static PyObject *ready_room(PyObject *module, PyObject *wanted)
{
    (void)module;
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    PyObject *room = PyErr_Occurred() ? NULL : PyByteArray_FromStringAndSize(NULL, size);
    if (room != NULL && size) {
        char *at = PyByteArray_AS_STRING(room);
        Py_BEGIN_ALLOW_THREADS
        memset(at, 0, (size_t)size);
        Py_END_ALLOW_THREADS
    }
    return room;
}

/* The integers of a set, or the keys of a dictionary with their values, in ascending order of the keys. NULL with an
   exception set on failure. */
static Due *sorted_dues(PyObject *of, Py_ssize_t size)
{
    Due *dues = PyMem_RawMalloc((size_t)(size + 1) * sizeof(Due));
    PyObject *iterator = dues == NULL ? PyErr_NoMemory() : PyObject_GetIter(of), *key;
    Py_ssize_t count = 0;
    while (iterator != NULL && count < size && (key = PyIter_Next(iterator)) != NULL) {
        PyObject *time = PyDict_Check(of) ? PyDict_GetItemWithError(of, key) : NULL;
        dues[count].key = PyLong_AsUnsignedLongLong(key);
        dues[count++].deadline = time != NULL && !PyErr_Occurred() ? PyLong_AsUnsignedLongLong(time) : 0;
        Py_DECREF(key);
        if (PyErr_Occurred())
            break;
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        PyMem_RawFree(dues);
        return NULL;
    }
    qsort(dues, (size_t)count, sizeof(Due), by_key);
    return dues;
}

static const Due *due_of(const Due *dues, Py_ssize_t count, uint64_t key)
{
    return count ? bsearch(&key, dues, (size_t)count, sizeof(Due), by_key) : NULL;
}

static int by_lookup_identifier(const void *key, const void *entry)
{
    return ascending(key, &((const Deadline *)entry)->key);
}

/* The latest deadline of a message, or NULL. There may be several: a message that could not be removed in time is tried
   again later. */
static const Deadline *deadline_of(const Py_buffer *deadlines, uint64_t key)
{
    size_t count = (size_t)deadlines->len / sizeof(Deadline);
    const Deadline *all = deadlines->buf, *found = NULL;
    if (count)
        found = bsearch(&key, all, count, sizeof(Deadline), by_lookup_identifier);
    while (found != NULL && found + 1 < all + count && found[1].key == key)
        found++;
    return found;
}

/* A tuple of four bytes objects, the columns for `count` rows. */
static PyObject *new_columns(Py_ssize_t count)
{
    PyObject *columns = PyTuple_New(4);
    for (int column = 0; columns != NULL && column < 4; column++) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (column == 2 ? 4 : 8));
        if (bytes == NULL)
            Py_CLEAR(columns);
        else
            PyTuple_SET_ITEM(columns, column, bytes);
    }
    return columns;
}

static void fill_columns(PyObject *columns, const Row *rows, Py_ssize_t count)
{
    char *keys = PyBytes_AS_STRING(PyTuple_GET_ITEM(columns, 0)), *places = PyBytes_AS_STRING(PyTuple_GET_ITEM(columns, 1));
    char *sizes = PyBytes_AS_STRING(PyTuple_GET_ITEM(columns, 2)), *words = PyBytes_AS_STRING(PyTuple_GET_ITEM(columns, 3));
    for (Py_ssize_t at = 0; at < count; at++) {
        memcpy(keys + 8 * at, &rows[at].key, 8);
        memcpy(places + 8 * at, &rows[at].place, 8);
        memcpy(sizes + 4 * at, &rows[at].size, 4);
        memcpy(words + 8 * at, &rows[at].word, 8);
    }
}

/* Runs in any thread, and releases the interpreter lock for nearly all of the time. */
static PyObject *columns(PyObject *nothing, PyObject *arguments)
{
    (void)nothing;
    Py_buffer captured, deadlines;
    PyObject *left_out, *others, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "y*O!y*O!", &captured, &PySet_Type, &left_out, &deadlines, &PyDict_Type, &others))
        return NULL;
    const Captured *from = captured.buf;
    Py_ssize_t most = captured.len / (Py_ssize_t)sizeof(Captured), count = 0;
    Py_ssize_t outs = PySet_GET_SIZE(left_out), times = PyDict_GET_SIZE(others);
    Due *out = sorted_dues(left_out, outs), *due = out != NULL ? sorted_dues(others, times) : NULL;
    Row *rows = due != NULL ? PyMem_RawMalloc((size_t)(most + 1) * sizeof(Row)) : NULL;
    if (rows == NULL) {
        if (due != NULL)
            PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < most; at++) {
        uint64_t key = from[at].key;
        if (due_of(out, outs, key) != NULL)
            continue;
        const Due *other = due_of(due, times, key);
        const Deadline *time = other == NULL ? deadline_of(&deadlines, key) : NULL;
        uint64_t word = (key & ~SEQUENCE) | (other != NULL ? other->deadline : time != NULL ? time->deadline : 0);
        rows[count++] = (Row){key & SEQUENCE, from[at].place, word, (uint32_t)from[at].size};
    }
    qsort(rows, (size_t)count, sizeof(Row), by_key);
    Py_END_ALLOW_THREADS
    result = new_columns(count);
    if (result != NULL) {
        Py_BEGIN_ALLOW_THREADS
        fill_columns(result, rows, count);
        PyMem_RawFree(rows); /* takes milliseconds, too */
        Py_END_ALLOW_THREADS
        rows = NULL;
    }
end:
    PyBuffer_Release(&captured);
    PyBuffer_Release(&deadlines);
    PyMem_RawFree(out);
    PyMem_RawFree(due);
    PyMem_RawFree(rows);
    return result;
}

/* The places of the messages of `keys` from `start` on: at most `most`, until the sum of sizes reaches `volume` or a
   message is not in the store. */
static PyObject *places(PyObject *object, PyObject *arguments)
{
    Positions *self = (Positions *)object;
    PyObject *keys, *result = NULL;
    Py_ssize_t start, most;
    long long volume, taken = 0;
    if (!PyArg_ParseTuple(arguments, "O!nnL", &PyList_Type, &keys, &start, &most, &volume))
        return NULL;
    Py_ssize_t end = PyList_GET_SIZE(keys), count = 0;
    if (start < 0 || start > end || most < 0)
        return PyErr_Format(PyExc_ValueError, "no place %zd in %zd keys, or a negative limit", start, end);
    most = Py_MIN(most, end - start);
    PyObject *locations = PyBytes_FromStringAndSize(NULL, 8 * most), *sizes = PyBytes_FromStringAndSize(NULL, 4 * most);
    if (locations == NULL || sizes == NULL)
        goto end;
    for (; count < most && taken < volume; count++) {
        Place at;
        if (!look_up_next(self, keys, start + count, &at))
            goto end;
        if (held_at(at) != NULL)
            break;
        memcpy(PyBytes_AS_STRING(locations) + 8 * count, &slot_of_place(at)->place, 8);
        memcpy(PyBytes_AS_STRING(sizes) + 4 * count, size_of_place(at), 4);
        taken += *size_of_place(at);
    }
    if (_PyBytes_Resize(&locations, 8 * count) == 0 && _PyBytes_Resize(&sizes, 4 * count) == 0)
        result = Py_BuildValue("OOL", locations, sizes, taken);
end:
    Py_XDECREF(locations);
    Py_XDECREF(sizes);
    return result;
}

static bool note_deadline(PyObject *list, uint64_t key, uint64_t deadline)
{
    PyObject *pair = Py_BuildValue("KK", (unsigned long long)key, (unsigned long long)deadline);
    bool noted = pair != NULL && PyList_Append(list, pair) == 0;
    Py_XDECREF(pair);
    return noted;
}

/* Load the columns of a checkpoint into an empty object. Returns the sorted keys, 8 bytes each, the sum of the sizes,
   and the keys with deadlines. */
static PyObject *load(PyObject *object, PyObject *arguments)
{
    Positions *self = (Positions *)object;
    Py_buffer keys, locations, sizes, words;
    PyObject *sorted = NULL, *deadlines = NULL;
    unsigned long long total = 0;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*", &keys, &locations, &sizes, &words))
        return NULL;
    size_t count = (size_t)keys.len / 8;
    if (keys.len % 8 || locations.len != keys.len || words.len != keys.len || (size_t)sizes.len != 4 * count) {
        PyErr_SetString(PyExc_ValueError, "columns of the same length are needed");
        goto end;
    }
    uint64_t *found;
    sorted = new_column(one_u64, (Py_ssize_t)count, &found);
    deadlines = PyList_New(0);
    if (sorted == NULL || deadlines == NULL || (self->directory == NULL && !begin(self, count)))
        goto failed;
    bool in_order = true;
    for (size_t at = 0; at < count; at++) {
        uint64_t sequence, word, place;
        uint32_t size;
        memcpy(&sequence, (char *)keys.buf + 8 * at, 8);
        memcpy(&word, (char *)words.buf + 8 * at, 8);
        memcpy(&place, (char *)locations.buf + 8 * at, 8);
        memcpy(&size, (char *)sizes.buf + 4 * at, 4);
        found[at] = (word & ~SEQUENCE) | sequence;
        in_order = in_order && (at == 0 || found[at - 1] < found[at]);
        total += size;
        if (size >= HELD) {
            PyErr_SetString(PyExc_OverflowError, "an entry has a size below 2**32 - 2");
            goto failed;
        }
        if (!put(self, found[at], place, size))
            goto failed;
        if (word & SEQUENCE && !note_deadline(deadlines, found[at], word & SEQUENCE))
            goto failed;
    }
    if (!in_order)
        qsort(found, count, sizeof(uint64_t), ascending);
    goto end;
failed:
    Py_CLEAR(sorted);
    Py_CLEAR(deadlines);
end:
    PyBuffer_Release(&keys);
    PyBuffer_Release(&locations);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&words);
    return sorted == NULL ? NULL : Py_BuildValue("NKN", sorted, total, deadlines);
}

/* -- the type ---------------------------------------------------------------------------------------------------- */

static void dealloc(PyObject *object)
{
    Py_XDECREF(clear(object, NULL));
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"get", (PyCFunction)(void (*)(void))get, METH_FASTCALL, "get(key, otherwise=None): the entry"},
    {"pop", pop, METH_O, "pop(key): remove and return the entry"},
    {"place", (PyCFunction)(void (*)(void))place, METH_FASTCALL, "place(key, location, size): add or replace an entry"},
    {"location", location, METH_O, "location(key): the location of the message in the store; None for one in memory"},
    {"locations", locations, METH_O, "locations(keys): `location` of each key"},
    {"size", size, METH_O, "size(key): the size of the message"},
    {"volume", volume, METH_O, "volume(keys): the sum of the sizes of the messages"},
    {"remove", remove_one, METH_O, "remove(key): remove the entry and return the size of its message"},
    {"remove_all", remove_all, METH_O, "remove_all(keys): remove the entries and return the sum of the sizes"},
    {"update", update, METH_O, "update(entries): add or replace entries of a dictionary"},
    {"clear", clear, METH_NOARGS, "clear(): remove all"},
    {"capture", capture, METH_O, "capture(room): a copy of the entries of messages in the store"},
    {"columns", columns, METH_VARARGS | METH_STATIC,
     "columns(captured, left_out, deadlines, others): keys, locations, sizes, deadlines"},
    {"places", places, METH_VARARGS, "places(keys, start, most, volume): locations, sizes, bytes"},
    {"load", load, METH_VARARGS, "load(keys, locations, sizes, deadlines): sorted lookup identifiers, bytes, deadlines"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_iter, iterate},
    {Py_tp_methods, methods},
    {Py_mp_length, length},
    {Py_mp_subscript, subscript},
    {Py_mp_ass_subscript, assign},
    {Py_sq_contains, contains},
    {0},
};

static PyType_Spec specification = {
    "openmsmq.queueing.positions.Positions", sizeof(Positions), 0, Py_TPFLAGS_DEFAULT, slots,
};

static PyMethodDef functions[] = {
    {"ready_room", ready_room, METH_O, "ready_room(size): a bytearray whose memory pages are present"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "openmsmq.queueing.positions", "The places of the messages of a queue.", -1, functions,
};

PyMODINIT_FUNC PyInit_positions(void)
{
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&specification);
    name_size = PyUnicode_InternFromString("size");
    if (module == NULL || type == NULL || name_size == NULL || prepare_columns() < 0
        || PyModule_AddObjectRef(module, "Positions", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
