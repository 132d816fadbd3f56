/* CRC-32C of many records with the processor's CRC instruction. It has a latency of three cycles and a throughput of
   one per cycle, so three records are processed in parallel. IS_ACCELERATED is defined if the instruction exists. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIDE_BY_SIDE 3

#if defined(__x86_64__)
#define ACCELERATED __attribute__((target("sse4.2")))
#define CRC_WORD(crc, value) __builtin_ia32_crc32di(crc, value)
#define CRC_BYTE(crc, value) __builtin_ia32_crc32qi((uint32_t)(crc), value)
#define IS_ACCELERATED __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define ACCELERATED __attribute__((target("arch=armv8-a+crc")))
#define CRC_WORD(crc, value) __crc32cd((uint32_t)(crc), value)
#define CRC_BYTE(crc, value) __crc32cb((uint32_t)(crc), value)
#define IS_ACCELERATED (getauxval(AT_HWCAP) & (1 << 7))
#endif

#ifdef IS_ACCELERATED
typedef struct {
    const unsigned char *at, *end;
    uint64_t crc;
} CrcRecord;

ACCELERATED static void crc_side_by_side(CrcRecord *r)
{
    ptrdiff_t words = PTRDIFF_MAX;
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        if ((r[i].end - r[i].at) / 8 < words)
            words = (r[i].end - r[i].at) / 8;
    uint64_t a = r[0].crc, b = r[1].crc, c = r[2].crc, x, y, z;
    for (ptrdiff_t word = 0; word < words; word++) {
        memcpy(&x, r[0].at + 8 * word, 8);
        memcpy(&y, r[1].at + 8 * word, 8);
        memcpy(&z, r[2].at + 8 * word, 8);
        a = CRC_WORD(a, x);
        b = CRC_WORD(b, y);
        c = CRC_WORD(c, z);
    }
    r[0].crc = a, r[1].crc = b, r[2].crc = c;
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        r[i].at += 8 * words;
}

ACCELERATED static uint32_t crc_rest(const CrcRecord *record)
{
    uint64_t crc = record->crc, value;
    const unsigned char *at = record->at;
    for (; record->end - at >= 8; at += 8) {
        memcpy(&value, at, 8);
        crc = CRC_WORD(crc, value);
    }
    for (; at < record->end; at++)
        crc = CRC_BYTE(crc, *at);
    return ~(uint32_t)crc;
}

/* The checksums of up to SIDE_BY_SIDE records, which `crc_of` initialized. */
static void crc_results(CrcRecord *records, int count, uint32_t *results)
{
    if (count == SIDE_BY_SIDE)
        crc_side_by_side(records);
    for (int i = 0; i < count; i++)
        results[i] = crc_rest(&records[i]);
}

static inline CrcRecord crc_of(const unsigned char *at, ptrdiff_t size, uint32_t seed)
{
    return (CrcRecord){at, at + size, (uint32_t)~seed};
}
#endif
