/* Load generator: repeats prepared requests on open connections and measures the replies. It uses the same small share of
   the machine for each server. `load.py` opens the connections, performs their handshakes and passes them on.

       load SECONDS COUNT DEPTH KIND... < CONNECTIONS

   SECONDS, COUNT: ends after this time or number of operations, or at the first failure.
   DEPTH: concurrent requests per connection.
   KIND: kind of connections, as CUT,SIZE,STEPS,FROM,TO,LENGTH,LISTENS:
       CUT: how the input is split into replies, see `cuts`. SIZE: size of a reply if CUT is `fixed`.
       STEPS: number of replies per operation; requests are sent in rotation.
       FROM, TO, LENGTH: bytes of a reply that are copied into the next request; LENGTH 0 for none.
       LISTENS: 1 if the server sends first.

   CONNECTIONS are 32-bit numbers: for each connection a descriptor, the index of its kind and the number of requests, and
   for each request its length and its bytes. Prints JSON: operations, their rate, latencies in microseconds, failures,
   seconds of processor time. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum { EVENTS = 256, INPUT = 256 << 10, MOST_DEPTH = 4096, MOST_CONNECTIONS = 4096, MOST_KINDS = 4 };

typedef struct Connection Connection;

/* Replies at the start of the input: their size, 0 if incomplete; their number, and how many of them are failures. */
typedef struct {
    size_t size;
    int answers, failures;
    int64_t slot; /* number of the request, modulo depth; -1 for the oldest one */
} Cut;

typedef struct {
    Cut (*cut)(Connection *, const char *, size_t);
    uint32_t answer_size, steps, copy_from, copy_to, copy_length, listens;
    bool is_rpc;
} Kind;

typedef struct {
    uint32_t length;
    char *data;
} Request;

struct Connection {
    const Kind *kind;
    int socket;
    uint32_t requests, next;
    Request *request;
    char *output; /* requests to be sent together */
    size_t ready, room, used;
    uint64_t asked, answered, tag;
    int64_t *begun; /* send times of pending requests, by their number modulo depth */
    char input[INPUT];
};

static uint32_t depth, kind_count;
static Kind kinds[MOST_KINDS];

static uint32_t big(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static uint32_t little(const char *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

/* ------------------------------------------------------------------------------------------------ splitting replies */

static Cut cut_fixed(Connection *connection, const char *data, size_t size)
{
    (void)data;
    uint32_t answer = connection->kind->answer_size;
    return (Cut){size >= answer ? answer : 0, 1, 0, -1};
}

enum { RPC_HEADER = 16, RPC_RESPONSE = 2, RPC_LAST_FRAGMENT = 2 };

/* DCE/RPC, C706 12.6; any response is a success. */
static Cut cut_responses(Connection *connection, const char *data, size_t size)
{
    (void)connection;
    size_t length = size < RPC_HEADER ? 0 : (unsigned char)data[8] | (unsigned char)data[9] << 8;
    if (size < RPC_HEADER || size < length)
        return (Cut){0};
    if (length < RPC_HEADER + 4 || data[2] != RPC_RESPONSE)
        return (Cut){length ? length : size, 1, 1, -1};
    if (!(data[3] & RPC_LAST_FRAGMENT))
        return (Cut){length, 0, 0, -1};
    return (Cut){length, 1, 0, little(data + 12) % depth};
}

/* DCE/RPC operations whose last out parameter is the result, 0 for success. */
static Cut cut_results(Connection *connection, const char *data, size_t size)
{
    Cut found = cut_responses(connection, data, size);
    if (found.answers && found.size <= size)
        found.failures |= little(data + found.size - 4) != 0;
    return found;
}

/* Redis: a simple string, an integer or a bulk string; a null bulk string is a failure. */
static Cut cut_redis(Connection *connection, const char *data, size_t size)
{
    (void)connection;
    const char *end = memmem(data, size, "\r\n", 2);
    if (end == NULL)
        return (Cut){0};
    size_t length = end + 2 - data;
    if (data[0] != '$')
        return (Cut){length, 1, data[0] == '-', -1};
    long body = strtol(data + 1, NULL, 10);
    if (body < 0)
        return (Cut){length, 1, 1, -1};
    length += body + 2;
    return (Cut){size >= length ? length : 0, 1, 0, -1};
}

/* PostgreSQL: messages up to ReadyForQuery; an error, or a DELETE without rows, is a failure. */
static Cut cut_postgresql(Connection *connection, const char *data, size_t size)
{
    (void)connection;
    int failures = 0;
    for (size_t at = 0; at + 5 <= size;) {
        size_t length = 1 + big(data + at + 1);
        if (at + length > size)
            break;
        failures |= data[at] == 'E' || (data[at] == 'C' && memcmp(data + at + 5, "DELETE 0", 8) == 0);
        at += length;
        if (data[at - length] == 'Z')
            return (Cut){at, 1, failures, -1};
    }
    return (Cut){0};
}

enum { AMQP_HEADER = 7, AMQP_METHOD = 1, AMQP_BODY = 3, AMQP_ACK = 60 << 16 | 80 };

/* RabbitMQ: basic.ack, which may acknowledge several messages. */
static Cut cut_acks(Connection *connection, const char *data, size_t size)
{
    if (size < AMQP_HEADER || size < AMQP_HEADER + big(data + 3) + 1)
        return (Cut){0};
    size_t length = AMQP_HEADER + big(data + 3) + 1;
    if (data[0] != AMQP_METHOD || big(data + AMQP_HEADER) != AMQP_ACK)
        return (Cut){length, 1, 1, -1};
    uint64_t tag = (uint64_t)big(data + AMQP_HEADER + 4) << 32 | big(data + AMQP_HEADER + 8);
    int answers = data[AMQP_HEADER + 12] ? (int)(tag - connection->tag) : 1;
    connection->tag = tag > connection->tag ? tag : connection->tag;
    return (Cut){length, answers, 0, -1};
}

/* RabbitMQ: a message, consisting of basic.deliver, header, and a body of one frame. */
static Cut cut_deliveries(Connection *connection, const char *data, size_t size)
{
    (void)connection;
    for (size_t at = 0; at + AMQP_HEADER <= size;) {
        size_t length = AMQP_HEADER + big(data + at + 3) + 1;
        if (at + length > size)
            break;
        at += length;
        if (data[at - length] == AMQP_BODY)
            return (Cut){at, 1, 0, -1};
    }
    return (Cut){0};
}

static const struct {
    const char *name;
    Cut (*cut)(Connection *, const char *, size_t);
} cuts[] = {
    {"responses", cut_responses}, {"results", cut_results}, {"redis", cut_redis}, {"postgresql", cut_postgresql},
    {"acks", cut_acks}, {"deliveries", cut_deliveries}, {"fixed", cut_fixed},
};

/* ------------------------------------------------------------------------------------------------------- measuring */

static int64_t begin, last;
static uint64_t done, wanted, failed;
static uint32_t *latencies; /* nanoseconds */
static uint64_t latencies_room;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void note(int64_t latency)
{
    if (done == latencies_room) {
        latencies_room = latencies_room ? 2 * latencies_room : 1 << 16;
        latencies = realloc(latencies, latencies_room * sizeof *latencies);
        if (latencies == NULL)
            fail("latencies");
    }
    latencies[done++] = latency > UINT32_MAX ? UINT32_MAX : (uint32_t)latency;
}

static int by_value(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double percentile(double share) { return done ? latencies[(uint64_t)((double)done * share)] / 1e3 : 0; }

static void report(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    qsort(latencies, done, sizeof *latencies, by_value);
    double seconds = (double)(last - begin) / 1e9;
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"count\": %lu, \"rate\": %f, \"p50\": %f, \"p99\": %f, \"p999\": %f, \"failed\": %lu, \"cpu\": %f}\n",
           (unsigned long)done, seconds > 0 ? (double)done / seconds : 0, percentile(0.5), percentile(0.99),
           percentile(0.999), (unsigned long)failed, cpu);
}

/* ------------------------------------------------------------------------------------------------------- connections */

static uint32_t read_number(void)
{
    uint32_t value;
    if (fread(&value, sizeof value, 1, stdin) != 1)
        fail("connections");
    return value;
}

static Connection *read_connection(int descriptor)
{
    Connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        fail("connections");
    connection->socket = descriptor;
    uint32_t kind = read_number();
    if (kind >= kind_count) {
        fprintf(stderr, "load: there is no kind %u\n", kind);
        exit(2);
    }
    connection->kind = &kinds[kind];
    connection->requests = read_number();
    connection->request = calloc(connection->requests, sizeof(Request));
    connection->begun = calloc(depth, sizeof(int64_t));
    for (uint32_t i = 0; i < connection->requests; i++) {
        Request *request = &connection->request[i];
        request->length = read_number();
        request->data = malloc(request->length + 1);
        if (fread(request->data, 1, request->length, stdin) != request->length)
            fail("connections");
        connection->room += (size_t)depth * request->length;
    }
    connection->output = malloc(connection->room + 1);
    return connection;
}

/* Append the next request to the output. `slot` is the number of the operation, modulo depth. Bytes of the last reply are
   copied into the request; if an operation has several steps, not into the first. */
static void ask(Connection *connection, uint32_t slot, const char *answer, int64_t time)
{
    const Kind *kind = connection->kind;
    Request *request = &connection->request[connection->next];
    connection->next = (connection->next + 1) % connection->requests;
    if (answer != NULL && kind->copy_length && kind->copy_to + kind->copy_length <= request->length)
        memcpy(request->data + kind->copy_to, answer + kind->copy_from, kind->copy_length);
    if (kind->is_rpc && depth > 1) { /* concurrent calls need different call_ids */
        uint32_t identifier = depth + slot;
        memcpy(request->data + 12, &identifier, 4);
    }
    memcpy(connection->output + connection->ready, request->data, request->length);
    connection->ready += request->length;
    connection->begun[slot] = time;
    connection->asked++;
}

static void flush(Connection *connection)
{
    for (size_t at = 0; at < connection->ready;) {
        ssize_t sent = send(connection->socket, connection->output + at, connection->ready - at, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            fail("send");
        at += sent < 0 ? 0 : sent;
    }
    connection->ready = 0;
}

/* Process received replies, and send a new request for each. Returns whether to continue. */
static bool serve(Connection *connection, int64_t end)
{
    const Kind *kind = connection->kind;
    ssize_t count = recv(connection->socket, connection->input + connection->used, INPUT - connection->used, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (count <= 0) {
        failed++;
        return false;
    }
    connection->used += count;
    last = now();
    size_t at = 0;
    for (Cut found; (found = kind->cut(connection, connection->input + at, connection->used - at)).size; at += found.size) {
        failed += found.failures;
        if (found.failures)
            return false;
        for (int i = 0; i < found.answers; i++) {
            bool ends = ++connection->answered % kind->steps == 0;
            uint32_t slot = found.slot >= 0 ? (uint32_t)found.slot : (uint32_t)(connection->answered - 1) % depth;
            int64_t begun = connection->begun[slot];
            if (ends)
                note(last - begun);
            ask(connection, slot, ends && kind->steps > 1 ? NULL : connection->input + at, ends ? last : begun);
            if (done >= wanted)
                return false;
        }
    }
    connection->used -= at;
    memmove(connection->input, connection->input + at, connection->used);
    if (connection->used == INPUT || last >= end) {
        failed += connection->used == INPUT;
        return false;
    }
    flush(connection);
    return true;
}

/* Parse a KIND of the command line. */
static bool read_kind(const char *text)
{
    char name[16];
    Kind *kind = &kinds[kind_count];
    if (kind_count == MOST_KINDS
        || sscanf(text, "%15[a-z],%u,%u,%u,%u,%u,%u", name, &kind->answer_size, &kind->steps, &kind->copy_from,
                  &kind->copy_to, &kind->copy_length, &kind->listens) != 7)
        return false;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (strcmp(name, cuts[i].name) == 0)
            kind->cut = cuts[i].cut;
    kind->is_rpc = kind->cut == cut_responses || kind->cut == cut_results;
    kind_count++;
    return kind->cut != NULL && kind->steps;
}

int main(int count, char **arguments)
{
    bool understood = count > 4;
    for (int i = 4; understood && i < count; i++)
        understood = read_kind(arguments[i]);
    double seconds = understood ? atof(arguments[1]) : 0;
    wanted = understood ? strtoull(arguments[2], NULL, 10) : 0;
    depth = understood ? atoi(arguments[3]) : 0;
    if (depth < 1 || depth > MOST_DEPTH) {
        fputs("load SECONDS COUNT DEPTH CUT,SIZE,STEPS,FROM,TO,LENGTH,LISTENS... < CONNECTIONS\n", stderr);
        return 2;
    }
    int queue = epoll_create1(0), descriptor;
    Connection *first[MOST_CONNECTIONS];
    int connections = 0;
    for (; connections < MOST_CONNECTIONS && fread(&descriptor, sizeof descriptor, 1, stdin) == 1; connections++) {
        first[connections] = read_connection(descriptor);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = first[connections]};
        if (epoll_ctl(queue, EPOLL_CTL_ADD, descriptor, &event))
            fail("epoll_ctl");
    }
    begin = last = now();
    int64_t end = begin + (int64_t)(seconds * 1e9);
    for (int i = 0; i < connections; i++) {
        for (uint32_t slot = 0; !first[i]->kind->listens && slot < depth; slot++)
            ask(first[i], slot, NULL, now());
        for (uint32_t slot = 0; first[i]->kind->listens && slot < depth; slot++)
            first[i]->begun[slot] = begin;
        flush(first[i]);
    }
    for (bool goes_on = connections > 0; goes_on;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(queue, events, EVENTS, 10000);
        if (ready == 0) { /* no reply within 10 s */
            failed++;
            break;
        }
        for (int i = 0; goes_on && i < ready; i++)
            goes_on = serve(events[i].data.ptr, end);
    }
    report();
    return 0;
}
