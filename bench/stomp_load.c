/* A load on any STOMP 1.2 broker, and what came of it: rates, latencies, losses, duplicates and order, as one line of JSON.
 *
 * In C, so that on a machine that broker and load share it is the broker that is measured: about one microsecond a message.
 * `bench/brokers.py` compiles and runs it. Bodies are a number, the time of sending, and filling without NUL; so frames end
 * at the first NUL whatever their headers say. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { STAMP_BYTES = 29, EVENTS = 64, READ_BYTES = 1 << 18, UNSENT_BYTES = 1 << 20 };

static struct {
    const char *host, *name, *header;
    int port, publishers, consumers, queues, topic, prefetch;
    long messages, size, window;
    double limit;
} options = {"127.0.0.1", "load", "", 61613, 1, 1, 1, 0, 500, 100000, 100, 500, 120.0};

typedef struct { char *data; size_t from, to, room; } Buffer;

typedef struct {
    int socket, number;
    bool is_consumer, is_ready;
    char destination[256];
    long unconfirmed, last;
    Buffer in, out;
} Peer;

static long published, confirmed, received, expected, duplicates, disordered;
static double begun_at, confirmed_at, received_at;
static double *sent_at, *receipt_seconds, *delivery_seconds;
static unsigned char *seen;
static char *filling;
static int poller;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void give_up(const char *what, const char *detail) {
    fprintf(stderr, "%s: %.500s\n", what, detail);
    exit(1);
}

/* Make room for so many bytes at the end of a buffer. */
static char *reserve(Buffer *buffer, size_t bytes) {
    if (buffer->from == buffer->to) buffer->from = buffer->to = 0;
    if (buffer->to + bytes > buffer->room) {
        memmove(buffer->data, buffer->data + buffer->from, buffer->to - buffer->from);
        buffer->to -= buffer->from;
        buffer->from = 0;
        if (buffer->to + bytes > buffer->room) {
            buffer->room = 2 * (buffer->to + bytes);
            buffer->data = realloc(buffer->data, buffer->room);
        }
    }
    return buffer->data + buffer->to;
}

static void append(Buffer *buffer, const char *data, size_t bytes) {
    memcpy(reserve(buffer, bytes), data, bytes);
    buffer->to += bytes;
}

/* Write what the socket takes, and ask to be told when it takes the rest. */
static void flush(Peer *peer) {
    Buffer *out = &peer->out;
    while (out->from < out->to) {
        ssize_t written = write(peer->socket, out->data + out->from, out->to - out->from);
        if (written < 0 && errno == EAGAIN) break;
        if (written < 0) give_up("write", strerror(errno));
        out->from += written;
    }
    struct epoll_event event = {.events = EPOLLIN | (out->from < out->to ? EPOLLOUT : 0), .data.ptr = peer};
    epoll_ctl(poller, EPOLL_CTL_MOD, peer->socket, &event);
}

/* Publish as many as the window allows. */
static void publish(Peer *peer) {
    size_t bytes = options.size > STAMP_BYTES ? options.size : STAMP_BYTES;
    while (published < options.messages && peer->unconfirmed < options.window && peer->out.to - peer->out.from < UNSENT_BYTES) {
        long number = published++;
        peer->unconfirmed++;
        sent_at[number] = now();
        reserve(&peer->out, bytes + 1024);
        peer->out.to += sprintf(peer->out.data + peer->out.to,
            "SEND\ndestination:%s\ncontent-length:%zu\n%s%sreceipt:%ld\n\n%010ld %017.6f ", peer->destination, bytes,
            options.header, *options.header ? "\n" : "", number, number, sent_at[number]);
        append(&peer->out, filling, bytes - STAMP_BYTES + 1);
    }
}

/* Find the value of a header; it ends at the end of its line. */
static const char *header(const char *head, const char *name) {
    const char *found = strstr(head, name);
    if (!found) give_up("a frame lacks a header", head);
    return found + strlen(name);
}

static void take_receipt(Peer *peer, const char *frame, double at) {
    if (peer->is_consumer) {
        peer->is_ready = true;
        return;
    }
    long number = atol(header(frame, "\nreceipt-id:"));
    receipt_seconds[confirmed++] = at - sent_at[number];
    peer->unconfirmed--;
    if (confirmed == options.messages) confirmed_at = at;
}

static void take_message(Peer *peer, const char *frame, double at) {
    const char *body = strstr(frame, "\n\n") + 2;
    long number = atol(body);
    if (received < expected) delivery_seconds[received] = at - atof(body + 11);
    received++;
    if (options.topic) {
        disordered += number != peer->last + 1;
        peer->last = number;
    } else {
        duplicates += seen[number];
        seen[number] = 1;
        const char *ack = header(frame, "\nack:");
        append(&peer->out, "ACK\nid:", 7);
        append(&peer->out, ack, strchr(ack, '\n') - ack);
        append(&peer->out, "\n\n", 3);
    }
    if (received == expected) received_at = at;
}

static void subscribe(Peer *peer) {
    char frame[1024];
    int bytes = sprintf(frame, "SUBSCRIBE\nid:0\ndestination:%s\nack:%s\nprefetch-count:%d\nreceipt:0\n\n", peer->destination,
        options.topic ? "auto" : "client-individual", options.prefetch);
    append(&peer->out, frame, bytes + 1);
}

static void take_frame(Peer *peer, const char *frame, double at) {
    if (!strncmp(frame, "RECEIPT", 7)) take_receipt(peer, frame, at);
    else if (!strncmp(frame, "MESSAGE", 7)) take_message(peer, frame, at);
    else if (strncmp(frame, "CONNECTED", 9)) give_up("the broker said", frame);
    else if (peer->is_consumer) subscribe(peer);
    else peer->is_ready = true;
}

/* Read what has come, and take the frames that are whole. */
static void hear(Peer *peer) {
    Buffer *in = &peer->in;
    ssize_t bytes = read(peer->socket, reserve(in, READ_BYTES), READ_BYTES);
    if (bytes == 0) give_up("the broker closed a connection of", peer->is_consumer ? "a consumer" : "a publisher");
    if (bytes < 0) {
        if (errno != EAGAIN) give_up("read", strerror(errno));
        return;
    }
    in->to += bytes;
    double at = now();
    for (char *end; (end = memchr(in->data + in->from, 0, in->to - in->from)); in->from = end - in->data + 1) {
        char *frame = in->data + in->from;
        while (*frame == '\n' || *frame == '\r') frame++;
        take_frame(peer, frame, at);
    }
}

static void connect_peer(Peer *peer, int number, bool is_consumer) {
    *peer = (Peer){.number = number, .is_consumer = is_consumer, .last = -1};
    char of[16] = "";
    if (options.queues > 1) sprintf(of, "%d", number % options.queues);
    snprintf(peer->destination, sizeof peer->destination, "/%s/%.200s%s", options.topic ? "topic" : "queue", options.name, of);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options.port)};
    inet_pton(AF_INET, options.host, &address.sin_addr);
    peer->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(peer->socket, (struct sockaddr *)&address, sizeof address)) give_up("connect", strerror(errno));
    int yes = 1;
    setsockopt(peer->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(peer->socket, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    epoll_ctl(poller, EPOLL_CTL_ADD, peer->socket, &event);
    const char hello[] = "CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n";
    append(&peer->out, hello, sizeof hello);
    flush(peer);
}

static bool are_ready(const Peer *peers, int count) {
    for (int number = 0; number < count; number++)
        if (!peers[number].is_ready) return false;
    return true;
}

/* Run the load until all is confirmed and received. */
static void run(Peer *peers, int count) {
    double until = now() + options.limit;
    bool is_begun = false;
    while (confirmed < options.messages || received < expected) {
        struct epoll_event events[EVENTS];
        int happened = epoll_wait(poller, events, EVENTS, 100);
        for (int number = 0; number < happened; number++) {
            Peer *peer = events[number].data.ptr;
            if (events[number].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) hear(peer);
            if (is_begun && !peer->is_consumer) publish(peer);
            flush(peer);
        }
        if (!is_begun && are_ready(peers, count)) {
            is_begun = true;
            begun_at = now();
            for (int number = 0; number < count; number++) {
                if (peers[number].is_consumer) continue;
                publish(&peers[number]);
                flush(&peers[number]);
            }
        }
        if (now() > until) {
            fprintf(stderr, "not done after %g s: %ld confirmed, %ld of %ld received\n", options.limit, confirmed, received, expected);
            exit(1);
        }
    }
}

static int compare(const void *one, const void *other) {
    double first = *(const double *)one, second = *(const double *)other;
    return (first > second) - (first < second);
}

static void print_quantiles(const char *name, double *seconds, long count) {
    if (!count) return;
    qsort(seconds, count, sizeof *seconds, compare);
    printf("\"%s_ms_p50\": %.3f, \"%s_ms_p99\": %.3f, ", name, seconds[count / 2] * 1e3, name, seconds[count * 99 / 100] * 1e3);
}

static void read_options(int count, char **arguments) {
    static const struct option known[] = {
        {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"publishers", 1, 0, 'P'}, {"consumers", 1, 0, 'C'}, {"queues", 1, 0, 'q'},
        {"topic", 0, &options.topic, 1}, {"messages", 1, 0, 'n'}, {"size", 1, 0, 's'}, {"window", 1, 0, 'w'},
        {"prefetch", 1, 0, 'f'}, {"name", 1, 0, 'N'}, {"header", 1, 0, 'H'}, {"limit", 1, 0, 'l'}, {0, 0, 0, 0}};
    for (int letter; (letter = getopt_long(count, arguments, "", known, 0)) != -1;) switch (letter) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 'P': options.publishers = atoi(optarg); break;
        case 'C': options.consumers = atoi(optarg); break;
        case 'q': options.queues = atoi(optarg); break;
        case 'n': options.messages = atol(optarg); break;
        case 's': options.size = atol(optarg); break;
        case 'w': options.window = atol(optarg); break;
        case 'f': options.prefetch = atoi(optarg); break;
        case 'N': options.name = optarg; break;
        case 'H': options.header = optarg; break;
        case 'l': options.limit = atof(optarg); break;
        case '?': exit(2);
    }
    if (optind < count) give_up("this is no option", arguments[optind]);
}

int main(int count, char **arguments) {
    read_options(count, arguments);
    expected = options.consumers ? options.messages * (options.topic ? options.consumers : 1) : 0;
    sent_at = calloc(options.messages, sizeof *sent_at);
    receipt_seconds = calloc(options.messages, sizeof *receipt_seconds);
    delivery_seconds = calloc(expected + 1, sizeof *delivery_seconds);
    seen = calloc(options.messages, 1);
    filling = calloc(options.size + STAMP_BYTES + 1, 1);
    memset(filling, 'x', options.size > STAMP_BYTES ? options.size - STAMP_BYTES : 0);
    poller = epoll_create1(0);
    int peers_count = options.publishers + options.consumers;
    Peer *peers = calloc(peers_count, sizeof *peers);
    for (int number = 0; number < options.consumers; number++) connect_peer(&peers[number], number, true);
    for (int number = 0; number < options.publishers; number++) connect_peer(&peers[options.consumers + number], number, false);
    run(peers, peers_count);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    printf("{\"confirmed_per_second\": %.0f, ", options.messages / (confirmed_at - begun_at));
    printf("\"received_per_second\": %.0f, ", expected ? expected / (received_at - begun_at) : 0.0);
    printf("\"duplicates\": %ld, \"disordered\": %ld, ", duplicates, disordered);
    print_quantiles("delivery", delivery_seconds, expected);
    print_quantiles("receipt", receipt_seconds, confirmed);
    printf("\"load_cpu_us\": %.2f}\n", cpu / options.messages * 1e6);
    return 0;
}
