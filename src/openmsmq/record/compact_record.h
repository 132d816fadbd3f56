/* The compact form of a message record: `openmsmq.record.compact_record` describes it and has the same functions in
   Python. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PLAIN_FORM = 1, COMPACT_FORM = 2, MOST_FIELDS = 32, LONGEST_FIXED = 256, MASKS = 7 };

/* A field: its offset and size in the plain form, and the offset of the field whose value it usually has; its own offset
   if its usual value is that of the template. */
typedef struct {
    uint16_t at, width, as;
} Slot;

typedef struct {
    uint32_t size, lengths, fields, parts; /* bytes of the fixed part, offset of the lengths in it, and numbers */
    uint32_t referring; /* bit i is set if field i usually has the value of another field */
    Slot slots[MOST_FIELDS];
    unsigned char usual[LONGEST_FIXED]; /* the template */
} Description;

/* Copies of a field: the compiler makes a few instructions of each constant width. */
static inline void copy_field(unsigned char *to, const unsigned char *from, uint32_t width)
{
    switch (width) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, width);
    }
}

static inline bool are_equal(const unsigned char *one, const unsigned char *other, uint32_t width)
{
    switch (width) {
    case 1: return *one == *other;
    case 2: return !memcmp(one, other, 2);
    case 4: return !memcmp(one, other, 4);
    case 16: return !memcmp(one, other, 8) && !memcmp(one + 8, other + 8, 8);
    case 20: return !memcmp(one, other, 8) && !memcmp(one + 8, other + 8, 8) && !memcmp(one + 16, other + 16, 4);
    default: return !memcmp(one, other, width);
    }
}

/* Fill in the fields that begin before offset `until`. Returns the bytes read, 0 if `record` is not valid. */
static size_t expand_fields(const Description *form, const unsigned char *record, size_t size, size_t until,
                            unsigned char *fixed)
{
    if (size < MASKS || record[0] != COMPACT_FORM)
        return 0;
    uint32_t mask = record[1] | record[2] << 8 | record[3] << 16 | (uint32_t)record[4] << 24;
    if ((uint64_t)mask >> form->fields)
        return 0;
    size_t from = MASKS;
    memcpy(fixed, form->usual, form->size);
    for (uint32_t left = mask; left; left &= left - 1) {
        const Slot *slot = &form->slots[__builtin_ctz(left)];
        if (slot->at >= until)
            break;
        if (size - from < slot->width)
            return 0;
        copy_field(fixed + slot->at, record + from, slot->width);
        from += slot->width;
    }
    for (uint32_t left = form->referring & ~mask; left; left &= left - 1) {
        const Slot *slot = &form->slots[__builtin_ctz(left)];
        copy_field(fixed + slot->at, fixed + slot->as, slot->width);
    }
    return from;
}

/* Write the fixed part of the plain form. Returns the offset of the parts in `record`, 0 if it is not valid. */
static size_t expand_fixed(const Description *form, const unsigned char *record, size_t size, unsigned char *fixed)
{
    size_t from = expand_fields(form, record, size, form->size, fixed);
    if (!from)
        return 0;
    uint32_t parts = record[5] | record[6] << 8;
    if (parts >> form->parts)
        return 0;
    for (unsigned char *to = fixed + form->lengths; parts; parts >>= 1, to += 4) {
        if (!(parts & 1))
            continue;
        uint64_t length = 0;
        int shift = 0;
        do {
            if (from == size || shift > 28)
                return 0;
            length |= (uint64_t)(record[from] & 0x7F) << shift;
            shift += 7;
        } while (record[from++] & 0x80);
        if (length > UINT32_MAX)
            return 0;
        uint32_t word = (uint32_t)length;
        memcpy(to, &word, 4);
    }
    return from;
}
