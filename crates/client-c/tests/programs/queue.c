/* Operations that nobody waits for, against the server that the first argument names. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <couaclient.h>

#define CHECK(condition)                                                                                  \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            fprintf(stderr, "line %d: %s: %d %s\n", __LINE__, #condition, error.status, error.message);   \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

enum { THREADS = 4, EACH = 2000 };

static coua_error error;
static atomic_int events[4];

static void observe(void *context, const char *server, int32_t event) {
    if (context == &events && strchr(server, ':') != NULL && event >= 0 && event < 4) {
        events[event]++;
    }
}

/* Submits an operation, and waits for the only completion. */
static coua_completion ask(coua_queue *queue, coua_request request) {
    static uint64_t token;
    coua_completion done;
    request.token = ++token;
    CHECK(coua_queue_submit(queue, &request, &error) == COUA_OK);
    for (int turn = 0; turn < 600; turn++) {
        int32_t count = coua_queue_wait(queue, &done, 1, 100, &error);
        CHECK(count >= 0);
        if (count == 1) {
            CHECK(done.token == token);
            return done;
        }
    }
    CHECK(!"there is no completion");
    exit(1);
}

static int32_t status_of(coua_queue *queue, coua_request request) {
    coua_completion done = ask(queue, request);
    coua_completions_release(&done, 1);
    return done.status;
}

static void operations(coua_queue *queue) {
    coua_request set = {.operation = COUA_SET, .key = "a", .key_len = 1, .value = "1", .value_len = 1, .client_flags = 7};
    CHECK(status_of(queue, set) == COUA_OK);
    coua_request get = {.operation = COUA_GET, .key = "a", .key_len = 1};
    coua_completion done = ask(queue, get);
    CHECK(done.status == COUA_OK && done.value.len == 1 && done.value.bytes[0] == '1' && done.value.client_flags == 7);
    uint64_t cas = done.value.cas;
    coua_completions_release(&done, 1);
    coua_completions_release(&done, 1);
    CHECK(done.value.bytes == NULL && cas != 0);
    set.operation = COUA_CAS;
    set.number = cas;
    CHECK(status_of(queue, set) == COUA_OK && status_of(queue, set) == COUA_EXISTS);
    set.operation = COUA_ADD;
    CHECK(status_of(queue, set) == COUA_NOT_STORED);
    coua_request count = {.operation = COUA_INCREMENT, .key = "a", .key_len = 1, .number = 41};
    done = ask(queue, count);
    CHECK(done.status == COUA_OK && done.number == 42);
    uint64_t initial = 5;
    count = (coua_request){.operation = COUA_DECREMENT, .key = "fresh", .key_len = 5, .number = 1, .initial = &initial};
    done = ask(queue, count);
    CHECK(done.status == COUA_OK && done.number == 5);
    count.key = "none";
    count.key_len = 4;
    count.initial = NULL;
    CHECK(status_of(queue, count) == COUA_MISSING);
    coua_slice keys[] = {{(const uint8_t *) "a", 1}, {(const uint8_t *) "none", 4}, {(const uint8_t *) "a b", 3}};
    coua_request many = {.operation = COUA_GET_MANY, .keys = keys, .key_count = 3};
    done = ask(queue, many);
    CHECK(done.status == COUA_INVALID && done.count == 3 && done.value.len > 0);
    CHECK(done.values[0].status == COUA_OK && done.values[0].len == 2 && memcmp(done.values[0].bytes, "42", 2) == 0);
    CHECK(done.values[1].status == COUA_MISSING && done.values[2].status == COUA_INVALID);
    coua_completions_release(&done, 1);
    coua_completions_release(&done, 1);
    coua_request touch = {.operation = COUA_GET_AND_TOUCH, .key = "a", .key_len = 1, .expiry = 100};
    done = ask(queue, touch);
    CHECK(done.status == COUA_OK && done.value.len == 2);
    coua_completions_release(&done, 1);
    touch.operation = COUA_TOUCH;
    CHECK(status_of(queue, touch) == COUA_OK);
    touch.operation = COUA_DELETE;
    CHECK(status_of(queue, touch) == COUA_OK && status_of(queue, touch) == COUA_MISSING);
    coua_request wrong = {.operation = 99};
    CHECK(coua_queue_submit(queue, &wrong, &error) == COUA_INVALID);
    CHECK(coua_queue_submit(queue, NULL, &error) == COUA_INVALID && coua_queue_submit(NULL, &get, NULL) == COUA_INVALID);
    get.key = NULL;
    CHECK(coua_queue_submit(queue, &get, &error) == COUA_INVALID);
    coua_request flush = {.operation = COUA_FLUSH_ALL};
    CHECK(status_of(queue, flush) == COUA_OK);
}

struct submitter {
    coua_queue *queue;
    uint64_t first;
};

static void *submit(void *argument) {
    struct submitter *own = argument;
    for (uint64_t i = 0; i < EACH; i++) {
        char key[32];
        int len = snprintf(key, sizeof key, "key:%d", (int) ((own->first + i) / 2));
        coua_request request = {
            .token = own->first + i, .operation = i % 2 ? COUA_GET : COUA_SET, .key = key, .key_len = (size_t) len,
            .value = key, .value_len = (size_t) len};
        if (coua_queue_submit(own->queue, &request, NULL) != COUA_OK) {
            return "it is not taken";
        }
    }
    return NULL;
}

/* Each operation is answered once, whoever submitted it. */
static void many_threads(coua_queue *queue) {
    static unsigned char seen[THREADS * EACH];
    pthread_t threads[THREADS];
    struct submitter submitters[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){queue, i * EACH};
        CHECK(pthread_create(&threads[i], NULL, submit, &submitters[i]) == 0);
    }
    int left = THREADS * EACH;
    for (int turn = 0; left > 0 && turn < 60000; turn++) {
        coua_completion done[64];
        int32_t count = coua_queue_wait(queue, done, 64, 100, &error);
        CHECK(count >= 0 && count <= 64);
        for (int32_t i = 0; i < count; i++) {
            CHECK(done[i].token < THREADS * EACH && !seen[done[i].token]++);
            CHECK(done[i].status == COUA_OK || (done[i].token % 2 && done[i].status == COUA_MISSING));
        }
        coua_completions_release(done, (size_t) count);
        left -= count;
    }
    CHECK(left == 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
    }
}

static void *wait_long(void *queue) {
    coua_completion done;
    return coua_queue_wait(queue, &done, 1, 60000, NULL) == 0 ? NULL : "it was not woken";
}

static void woken(coua_queue *queue) {
    pthread_t thread;
    void *wrong;
    CHECK(pthread_create(&thread, NULL, wait_long, queue) == 0);
    coua_queue_wake(queue);
    CHECK(pthread_join(thread, &wrong) == 0 && wrong == NULL);
}

/* Nobody answers; more is taken than there is room for. */
static void mute(coua_queue *queue) {
    coua_request get = {.operation = COUA_GET, .key = "k", .key_len = 1};
    for (int i = 0; i < 16384; i++) {
        CHECK(coua_queue_submit(queue, &get, &error) == COUA_OK);
    }
    CHECK(coua_queue_submit(queue, &get, &error) == COUA_NOT_SENT && error.cause == COUA_CAUSE_BUSY);
    coua_completion done[8];
    int32_t count = coua_queue_wait(queue, done, 8, 60000, &error);
    CHECK(count > 0 && done[0].status < 0 && done[0].cause == COUA_CAUSE_TIMEOUT && done[0].value.len > 0);
    coua_completions_release(done, (size_t) count);
}

int main(int argc, char **argv) {
    coua_queue *queue;
    CHECK(argc == 3);
    int is_mute = strcmp(argv[2], "mute") == 0;
    const char *options = is_mute ? "operation_timeout_ms=300 connect_timeout_ms=300" : "";
    CHECK(coua_queue_open("a b", NULL, NULL, NULL, &queue, &error) == COUA_INVALID && queue == NULL);
    CHECK(coua_queue_open(argv[1], options, observe, &events, &queue, &error) == COUA_OK);
    if (is_mute) {
        mute(queue);
    } else {
        operations(queue);
        many_threads(queue);
        woken(queue);
        CHECK(events[COUA_EVENT_CONNECTED] == 2 && events[COUA_EVENT_LOST] == 0);
    }
    coua_queue_close(queue);
    coua_queue_close(NULL);
    puts("all well");
    return 0;
}
