/* Reading NDR 2.0 (C706 chapter 14), little-endian, from a stub whose size is known: bodies by their offsets, then
   the referents of the pointers in sequence. A missing part makes the stub unsuitable for the fast path. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { /* the referents, read in sequence */
    const unsigned char *stub;
    size_t at, size;
    bool simple; /* false: the stub is invalid or the call is not simple */
} Reader;

static uint32_t word_at(const unsigned char *stub, size_t at)
{
    uint32_t value;
    memcpy(&value, stub + at, 4);
    return value;
}

static const unsigned char *take(Reader *reader, size_t size)
{
    if (size > reader->size - reader->at) {
        reader->simple = false;
        return NULL;
    }
    reader->at += size;
    return reader->stub + reader->at - size;
}

static void align(Reader *reader, size_t to)
{
    size_t padding = -reader->at & (to - 1);
    take(reader, padding);
}

static uint32_t read_word(Reader *reader)
{
    align(reader, 4);
    const unsigned char *found = take(reader, 4);
    return found == NULL ? 0 : word_at(found, 0);
}

static uint32_t byte_of(Reader *reader, uint32_t pointer, uint32_t otherwise)
{
    const unsigned char *found = pointer ? take(reader, 1) : NULL;
    return found == NULL ? otherwise : *found;
}

static uint32_t half_of(Reader *reader, uint32_t pointer)
{
    if (!pointer)
        return 0;
    align(reader, 2);
    const unsigned char *found = take(reader, 2);
    return found == NULL ? 0 : found[0] | found[1] << 8;
}
