// One turn of libmemcached: HOST PORT get|get-many|set|set-many SECONDS, or COUNTx. Prints requests a second.
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 1000, MANY = 100, VALUE_LEN = 100, KEY_LEN = 10 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "%s went wrong\n", what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    check(argc == 5, "HOST PORT get|get-many|set|set-many SECONDS");
    memcached_st *cache = memcached_create(NULL);
    memcached_behavior_set(cache, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    check(memcached_server_add(cache, argv[1], (in_port_t) atoi(argv[2])) == MEMCACHED_SUCCESS, "the server");
    static char storage[KEYS][KEY_LEN + 1];
    const char *keys[KEYS];
    size_t lengths[KEYS];
    for (int i = 0; i < KEYS; i++) {
        snprintf(storage[i], sizeof storage[i], "key:%06d", i);
        keys[i] = storage[i];
        lengths[i] = KEY_LEN;
    }
    char value[VALUE_LEN];
    memset(value, 'v', sizeof value);
    double seconds = atof(argv[4]), started = 0;
    long limit = strchr(argv[4], 'x') != NULL ? atol(argv[4]) : 0;
    long count = 0;
    memcached_return_t rc;
    int is_buffered = strcmp(argv[3], "set-many") == 0;
    if (is_buffered) {
        memcached_behavior_set(cache, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
    }
    // The first requests connect.
    for (long warm = -64;; warm += 16) {
        if (warm == 0) {
            started = now();
            count = 0;
        } else if (warm > 0 && (limit > 0 ? count >= limit : now() - started >= seconds)) {
            break;
        }
        for (int i = 0; i < 16; i++, count++) {
            int number = (int) (count % KEYS);
            if (strcmp(argv[3], "set") == 0) {
                rc = memcached_set(cache, keys[number], KEY_LEN, value, sizeof value, 0, 0);
                check(rc == MEMCACHED_SUCCESS, "set");
            } else if (strcmp(argv[3], "get") == 0) {
                size_t length;
                uint32_t flags;
                char *got = memcached_get(cache, keys[number], KEY_LEN, &length, &flags, &rc);
                check(got != NULL && length == VALUE_LEN && memcmp(got, value, length) == 0, "get");
                free(got);
            } else if (is_buffered) {
                int begin = (int) (count * MANY % KEYS);
                for (int key = begin; key < begin + MANY; key++) {
                    rc = memcached_set(cache, keys[key], KEY_LEN, value, sizeof value, 0, 0);
                    check(rc == MEMCACHED_BUFFERED || rc == MEMCACHED_SUCCESS, "set");
                }
                check(memcached_flush_buffers(cache) == MEMCACHED_SUCCESS, "the sets");
            } else {
                int begin = (int) (count * MANY % KEYS), hits = 0;
                check(memcached_mget(cache, keys + begin, lengths + begin, MANY) == MEMCACHED_SUCCESS, "mget");
                memcached_result_st result;
                memcached_result_create(cache, &result);
                while (memcached_fetch_result(cache, &result, &rc) != NULL) {
                    hits++;
                }
                memcached_result_free(&result);
                check(hits == MANY, "fetch");
            }
        }
    }
    printf("%.1f\n", (double) count / (now() - started));
    memcached_free(cache);
    return 0;
}
