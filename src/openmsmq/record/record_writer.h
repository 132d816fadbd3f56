/* Writing a message record in its plain form. Its contents are declared in `record.fields`, its layout is computed by
   `openmsmq.record.layouts`. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Offsets in a record of the fields that a sender sets and of those that differ between messages. */
typedef struct {
    uint32_t size; /* of the fixed part */
    uint32_t priority, delivery, milliseconds, tag, body_type, time_to_reach, sent, arrived, hash, encryption, sender_type,
        identifier, correlation, lengths;
} Layout;

/* The first parts of a record. The lengths of all parts, uint32 each, are the end of its fixed part. */
enum { BODY, EXTENSION, SENDER, CERTIFICATE, KEY, SIGNATURE, LABEL, DESTINATION };
enum { IDENTIFIER = 20, MACHINE = 16, LONGEST_LABEL = 249 };

typedef struct {
    const unsigned char *data;
    uint32_t size;
} Part;

typedef struct {
    const unsigned char *data; /* UTF-16 */
    uint32_t units, size;      /* code units, and bytes in UTF-8 */
} Label;

/* Cut a label at its NUL and count its bytes in UTF-8. Returns whether it is simple: not too long, no surrogates. */
static bool measure_label(Label *label)
{
    uint32_t size = 0, units = 0;
    for (; units < label->units; units++) {
        uint32_t unit = label->data[2 * units] | label->data[2 * units + 1] << 8;
        if (unit == 0)
            break;
        if (units == LONGEST_LABEL || (unit >= 0xD800 && unit < 0xE000))
            return false;
        size += unit < 0x80 ? 1 : unit < 0x800 ? 2 : 3;
    }
    label->units = units;
    label->size = size;
    return true;
}

static unsigned char *write_label(unsigned char *into, const Label *label)
{
    for (uint32_t i = 0; i < label->units; i++) {
        uint32_t unit = label->data[2 * i] | label->data[2 * i + 1] << 8;
        if (unit < 0x80)
            *into++ = (unsigned char)unit;
        else {
            if (unit < 0x800)
                *into++ = (unsigned char)(0xC0 | unit >> 6);
            else {
                *into++ = (unsigned char)(0xE0 | unit >> 12);
                *into++ = (unsigned char)(0x80 | (unit >> 6 & 0x3F));
            }
            *into++ = (unsigned char)(0x80 | (unit & 0x3F));
        }
    }
    return into;
}

static void write_word(unsigned char *record, uint32_t at, uint32_t value) { memcpy(record + at, &value, 4); }

static unsigned char *write_part(unsigned char *into, const unsigned char *data, uint32_t size)
{
    if (size)
        memcpy(into, data, size);
    return into + size;
}
