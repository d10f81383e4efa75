// Prints which server libmemcached chooses for each of 20,000 keys, one byte a key: '0' + the server's index.
// Use: libmemcached modula|ketama HOST:PORT:WEIGHT...
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(memcached_return_t rc, memcached_st *memc) {
    if (rc != MEMCACHED_SUCCESS) {
        fprintf(stderr, "%s\n", memcached_strerror(memc, rc));
        exit(1);
    }
}

int main(int argc, char **argv) {
    memcached_st *memc = memcached_create(NULL);
    if (strcmp(argv[1], "ketama") == 0) {
        check(memcached_behavior_set(memc, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1), memc);
    }
    for (int i = 2; i < argc; i++) {
        char *host = strdup(argv[i]);
        char *weight = strrchr(host, ':');
        *weight++ = 0;
        char *port = strrchr(host, ':');
        *port++ = 0;
        check(memcached_server_add_with_weight(memc, host, atoi(port), atoi(weight)), memc);
    }
    for (int i = 0; i < 20000; i++) {
        char key[32];
        // The second half has bytes above 127, which some hashes take for negative numbers.
        int len = snprintf(key, sizeof key, i < 10000 ? "key-%d" : "schl\xc3\xbcssel:%d", i);
        putchar('0' + (int) memcached_generate_hash(memc, key, (size_t) len));
    }
    memcached_free(memc);
    return 0;
}
