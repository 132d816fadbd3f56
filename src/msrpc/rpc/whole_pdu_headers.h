/* Headers of requests and responses of one fragment without a verifier (C706 12.6.4.9 and 12.6.4.10). */

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER == __LITTLE_ENDIAN
#define WHOLE_PDU_HEADERS

typedef struct __attribute__((packed)) {
    uint32_t version_type_flags, data_representation;
    uint16_t length, auth_length;
    uint32_t call_id, alloc_hint;
    uint16_t context_id, opnum; /* in a response: cancel_count and a reserved byte */
} Header;

enum {
    REQUEST = 0x03000005, REQUEST_WITH_OBJECT = 0x83000005, RESPONSE = 0x03020005, LITTLE_ENDIAN_ASCII_IEEE = 0x10,
    OBJECT_SIZE = 16, /* bytes of the object UUID, between header and stub */
};

/* Return the offset of the stub if these bytes begin with such a request of at most `most` bytes, otherwise 0; store
   its header. */
static inline size_t stub_of_whole_request(const char *data, Py_ssize_t size, Py_ssize_t most, Header *header)
{
    size_t stub = sizeof *header;
    if (size < (Py_ssize_t)stub)
        return 0;
    memcpy(header, data, stub);
    if (header->version_type_flags == REQUEST_WITH_OBJECT)
        stub += OBJECT_SIZE;
    else if (header->version_type_flags != REQUEST)
        return 0;
    int is_whole = header->data_representation == LITTLE_ENDIAN_ASCII_IEEE && !header->auth_length
                   && header->length >= stub && header->length <= size && header->length <= most;
    return is_whole ? stub : 0;
}

/* Return whether these bytes begin with such a request without an object UUID; otherwise as `stub_of_whole_request`. */
static inline int is_whole_request(const char *data, Py_ssize_t size, Py_ssize_t most, Header *header)
{
    return stub_of_whole_request(data, size, most, header) == sizeof *header;
}

/* Return whether these bytes are the start of such a request that is incomplete. */
static inline int is_beginning_of_whole_request(const char *data, Py_ssize_t size, Py_ssize_t most)
{
    Header header = {.version_type_flags = REQUEST, .data_representation = LITTLE_ENDIAN_ASCII_IEEE};
    size_t fixed = offsetof(Header, length), lengths_end = offsetof(Header, call_id);
    if (memcmp(data, &header, (size_t)size < fixed ? (size_t)size : fixed) != 0)
        return 0;
    if ((size_t)size < lengths_end)
        return 1;
    memcpy(&header, data, lengths_end);
    return !header.auth_length && header.length > size && header.length <= most;
}

/* Return the header of a response that fits into one fragment. */
static inline Header response_header(uint32_t call_id, uint16_t context_id, size_t stub_size)
{
    return (Header){
        .version_type_flags = RESPONSE, .data_representation = LITTLE_ENDIAN_ASCII_IEEE,
        .length = (uint16_t)(sizeof(Header) + stub_size), .call_id = call_id, .alloc_hint = (uint32_t)stub_size,
        .context_id = context_id,
    };
}
#endif
