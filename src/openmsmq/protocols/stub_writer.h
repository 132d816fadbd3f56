/* Writing NDR 2.0 (C706 chapter 14), little-endian, into a buffer of known size. Data that does not fit is not written,
   and clears `fits`. Include record_reader.h before. */

enum { FIRST_REFERENT = 0x20000 };

typedef struct {
    unsigned char *data;
    size_t at, room;
    uint32_t referent;
    bool fits;
} Writer;

static unsigned char *place(Writer *out, size_t size)
{
    if (!out->fits || size > out->room - out->at) {
        out->fits = false;
        return NULL;
    }
    out->at += size;
    return out->data + out->at - size;
}

/* Like `place`, after zeros up to a multiple of `to`, which is a power of two of at most 4. */
static unsigned char *place_aligned(Writer *out, size_t size, size_t to)
{
    size_t padding = -out->at & (to - 1);
    unsigned char *at = place(out, padding + size);
    if (at == NULL)
        return NULL;
    for (size_t i = 0; i < padding; i++)
        at[i] = 0;
    return at + padding;
}

static void put_word(Writer *out, uint32_t value)
{
    unsigned char *at = place_aligned(out, 4, 4);
    if (at != NULL)
        memcpy(at, &value, 4);
}

static void put_referent(Writer *out)
{
    put_word(out, out->referent);
    out->referent += 4;
}

/* Write bytes, and zeros up to `size`. */
static void put_bytes(Writer *out, const unsigned char *data, size_t length, size_t size)
{
    unsigned char *at = place(out, size);
    if (at == NULL)
        return;
    if (length)
        memcpy(at, data, length);
    memset(at + length, 0, size - length);
}

/* Write a text with its terminator, and zeros up to `size` code units. */
static void put_text(Writer *out, const Part *text, size_t size)
{
    unsigned char *into = place(out, 2 * size);
    const unsigned char *at = text->data, *end = at + text->size;
    if (into == NULL)
        return;
    memset(into, 0, 2 * size);
    for (; at < end && *at < 0x80; into += 2) /* usually the whole text */
        *into = *at++;
    while (at < end) {
        int32_t point = next_point(&at, end);
        uint16_t units[2] = {(uint16_t)point, 0};
        int count = 1;
        if (point > 0xFFFF) {
            units[0] = (uint16_t)(0xD800 | (point - 0x10000) >> 10);
            units[1] = (uint16_t)(0xDC00 | ((point - 0x10000) & 0x3FF));
            count = 2;
        }
        for (int i = 0; i < count; i++) {
            *into++ = (unsigned char)units[i];
            *into++ = (unsigned char)(units[i] >> 8);
        }
    }
}
