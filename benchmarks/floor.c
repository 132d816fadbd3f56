/* The baseline program: measures only the cost of the system calls of durable messages on this machine.

   It receives requests of a fixed size, appends a record for each to a file, syncs the file and replies with a fixed number
   of bytes. A server that does the same and also processes the messages cannot be faster. Sizes are arguments,
   REQUEST,RECORD,ANSWER for each operation: a send has a large request and a small reply, a receive the opposite. The first
   byte of a request is the number of its operation.

       floor FILE FORM WORK OPERATION...

   FORM is `in-place` (the event loop writes, syncs and replies for all requests of one iteration) or `thread` (another
   thread does, while the loop continues to receive). WORK is the computing time per request in nanoseconds. Prints the port
   on which it listens. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FILE_SIZE = 256 << 20, BATCH_SIZE = 16 << 20, EVENTS = 256, BACKLOG = 1024, PIECE = 1 << 20,
       REQUEST_ROOM = 64 << 10, MOST_OPERATIONS = 8 };

/* Sizes in bytes. */
typedef struct {
    size_t request, record, answer;
} Operation;


typedef struct {
    int socket;
    size_t used;
    char data[REQUEST_ROOM];
} Connection;

/* Records that share a sync, and the connections that wait for it. */
typedef struct {
    size_t size, answers;
    char data[BATCH_SIZE];
    struct {
        int socket;
        size_t answer;
    } waiting[BATCH_SIZE / 64];
} Batch;

static int file;
static off_t position;
static long work;
static Operation operations[MOST_OPERATIONS];
static int operation_count;
static char answers[PIECE]; /* zeros */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void compute(void)
{
    if (work)
        for (long end = nanoseconds() + work; nanoseconds() < end;)
            ;
}

static void add(Batch *batch, int socket, const char *request, const Operation *operation)
{
    if (batch->size + operation->record > BATCH_SIZE || batch->answers == sizeof batch->waiting / sizeof *batch->waiting) {
        fputs("more requests in one turn than there is room for\n", stderr);
        exit(1);
    }
    size_t copied = operation->record < operation->request ? operation->record : operation->request;
    memcpy(batch->data + batch->size, request, copied);
    batch->size += operation->record;
    batch->waiting[batch->answers].socket = socket;
    batch->waiting[batch->answers++].answer = operation->answer;
}

/* Write and sync a batch, then reply to its requests. */
static void carry_out(Batch *batch)
{
    if (position + (off_t)batch->size > FILE_SIZE)
        position = 0;
    if (pwrite(file, batch->data, batch->size, position) != (ssize_t)batch->size || fdatasync(file))
        fail("file");
    position += batch->size;
    for (size_t i = 0; i < batch->answers;) { /* one send for consecutive replies of a connection */
        int socket = batch->waiting[i].socket;
        size_t size = 0;
        for (; i < batch->answers && batch->waiting[i].socket == socket && size + batch->waiting[i].answer <= PIECE; i++)
            size += batch->waiting[i].answer;
        send(socket, answers, size, MSG_NOSIGNAL);
    }
    batch->size = batch->answers = 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static Batch *filling; /* the batch to which the loop adds requests */
static bool writer_waits;

static void *run_writer(void *nothing)
{
    Batch *mine = calloc(1, sizeof *mine);
    for (;;) {
        pthread_mutex_lock(&lock);
        writer_waits = true;
        while (!filling->answers)
            pthread_cond_wait(&filled, &lock);
        writer_waits = false;
        Batch *taken = filling;
        filling = mine;
        mine = taken;
        pthread_mutex_unlock(&lock);
        carry_out(mine);
    }
    return nothing;
}

static void hand_over(int socket, const char *request, const Operation *operation)
{
    pthread_mutex_lock(&lock);
    add(filling, socket, request, operation);
    bool wake = writer_waits;
    pthread_mutex_unlock(&lock);
    if (wake)
        pthread_cond_signal(&filled);
}

/* Process received data. Returns whether the connection is still open. */
static bool serve(Connection *connection, bool in_place)
{
    ssize_t count = recv(connection->socket, connection->data + connection->used,
                         sizeof connection->data - connection->used, 0);
    if (count <= 0)
        return false;
    connection->used += count;
    size_t at = 0;
    for (const Operation *operation; at < connection->used; at += operation->request) {
        const char *request = connection->data + at;
        if (*request < 0 || *request >= operation_count)
            return false;
        operation = &operations[(int)*request];
        if (connection->used - at < operation->request)
            break;
        compute();
        if (in_place)
            add(filling, connection->socket, request, operation);
        else
            hand_over(connection->socket, request, operation);
    }
    connection->used -= at;
    memmove(connection->data, connection->data + at, connection->used);
    return true;
}

static void watch(int queue, int descriptor, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(queue, EPOLL_CTL_ADD, descriptor, &event))
        fail("epoll_ctl");
}

static void accept_one(int queue, int listener)
{
    int socket = accept(listener, NULL, NULL), one = 1;
    Connection *connection = calloc(1, sizeof *connection);
    if (socket < 0 || connection == NULL)
        fail("accept");
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection->socket = socket;
    watch(queue, socket, connection);
}

static int listen_somewhere(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, BACKLOG)
        || getsockname(listener, (struct sockaddr *)&address, &size))
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

/* Create a file with all blocks allocated, like a log segment, so that a sync writes only data. */
static void prepare_file(const char *path)
{
    char *zeros = calloc(1, PIECE);
    file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        fail(path);
    for (off_t at = 0; at < FILE_SIZE; at += PIECE)
        if (pwrite(file, zeros, PIECE, at) != PIECE)
            fail(path);
    if (fsync(file))
        fail(path);
    free(zeros);
}

int main(int count, char **arguments)
{
    for (int i = 4; i < count && operation_count < MOST_OPERATIONS; i++) {
        Operation *one = &operations[operation_count];
        operation_count += sscanf(arguments[i], "%zu,%zu,%zu", &one->request, &one->record, &one->answer) == 3
            && one->request && one->request <= REQUEST_ROOM && one->answer <= PIECE;
    }
    if (!operation_count || operation_count != count - 4) {
        fputs("floor FILE in-place|thread WORK REQUEST,RECORD,ANSWER...\n", stderr);
        return 2;
    }
    bool in_place = strcmp(arguments[2], "thread") != 0;
    work = atol(arguments[3]);
    filling = calloc(1, sizeof *filling);
    prepare_file(arguments[1]);
    pthread_t writer;
    if (!in_place && pthread_create(&writer, NULL, run_writer, NULL))
        fail("pthread_create");
    int queue = epoll_create1(0), listener = listen_somewhere();
    watch(queue, listener, NULL);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(queue, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            if (connection == NULL)
                accept_one(queue, listener);
            else if (!serve(connection, in_place)) {
                close(connection->socket);
                free(connection);
            }
        }
        if (in_place && filling->answers)
            carry_out(filling);
    }
}
