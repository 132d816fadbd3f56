/* Reading a message record: its contents are declared in `record.fields`, its layout is computed by
   `openmsmq.record.layouts`. Needs `word_at`, which stub_reader.h has. */

#include "compact_record.h"

/* Offsets of the fields of a record. */
typedef struct {
    uint32_t size; /* of the fixed part */
    uint32_t version, priority, delivery, acknowledgements, journaling, tracing, authentication, flags, message_class, tag,
        body_type, time_to_reach, time_to_be_received, sent, arrived, privacy, hash, encryption, sender_type, provider_type,
        tail, identifier, correlation, machine, connector, transaction, aborts, moves, last_move, milliseconds, lengths;
    Description compact;
} Layout;

/* The parts of a record. Their lengths, uint32 each, end its fixed part. */
enum { BODY, EXTENSION, SENDER, CERTIFICATE, KEY, SIGNATURE, LABEL, DESTINATION, ADMINISTRATION, RESPONSE, STATUS, PROVIDER,
       PARTS };
enum { IDENTIFIER = 20, GUID = 16 };
static const uint32_t INFINITE = UINT32_MAX;

typedef struct {
    const unsigned char *data;
    uint32_t size, units; /* bytes, and for a text its UTF-16 code units */
} Part;

/* The next code point of UTF-8, which may be half of a surrogate pair; -1 for an invalid sequence. */
static int32_t next_point(const unsigned char **at, const unsigned char *end)
{
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    unsigned char first = *(*at)++;
    int more = first < 0x80 ? 0 : first < 0xC0 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF8 ? 3 : -1;
    if (more < 0 || end - *at < more)
        return -1;
    int32_t point = more ? first & (0x3F >> more) : first;
    for (int i = 0; i < more; i++) {
        if ((**at & 0xC0) != 0x80)
            return -1;
        point = point << 6 | (*(*at)++ & 0x3F);
    }
    return point < least[more] || point > 0x10FFFF ? -1 : point;
}

static bool count_units(Part *text)
{
    const unsigned char *at = text->data, *end = at + text->size;
    text->units = 0;
    while (at < end && *at < 0x80) /* usually the whole text */
        at++;
    text->units = (uint32_t)(at - text->data);
    while (at < end) {
        int32_t point = next_point(&at, end);
        if (point < 0)
            return false;
        text->units += point > 0xFFFF ? 2 : 1;
    }
    return true;
}

/* Find the parts of a record in either form. Returns its fixed part in plain form: the record itself, or `fixed`, which
   has room for LONGEST_FIXED bytes. Returns NULL if it is not valid, or the receipt of its message has consequences. */
static const unsigned char *split_record(Part *parts, const unsigned char *record, size_t size, const Layout *layout,
                                         unsigned char *fixed)
{
    static const unsigned char no_identifier[IDENTIFIER];
    uint64_t at = expand_fixed(&layout->compact, record, size, fixed);
    if (!at) {
        if (size < layout->size || record[layout->version] != PLAIN_FORM)
            return NULL;
        fixed = (unsigned char *)record;
        at = layout->size;
    }
    if (fixed[layout->flags] || fixed[layout->acknowledgements] || word_at(fixed, layout->tail)
        || memcmp(fixed + layout->transaction, no_identifier, IDENTIFIER))
        return NULL;
    for (int part = 0; part < PARTS; part++) {
        parts[part] = (Part){record + at, word_at(fixed, layout->lengths + 4 * part), 0};
        at += parts[part].size;
    }
    if (at != size)
        return NULL;
    for (int part = LABEL; part < PARTS; part++)
        if (!count_units(&parts[part]))
            return NULL;
    return fixed;
}
