/*
 * The usual way to use a cache: take what is there, else make it and put it there.
 *
 *     cc cache_aside.c $(pkg-config --cflags --libs couaclient) && ./a.out 127.0.0.1:11211
 */
#include <couaclient.h>

#include <stdio.h>
#include <string.h>

/* What the cache spares: a query of a database, say. */
static const char *make(void) {
    return "a greeting that took long to think of";
}

int main(int argc, char **argv) {
    const char *key = "greeting";
    coua_client *cache;
    coua_error error;

    if (coua_open(argc > 1 ? argv[1] : "127.0.0.1:11211", "connections=4", &cache, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int turn = 0; turn < 2; turn++) {
        coua_value value;
        switch (coua_get(cache, key, strlen(key), &value, &error)) {
        case COUA_OK:
            /* Read in place, and give back. */
            printf("found: %.*s\n", (int) value.len, (const char *) value.bytes);
            coua_value_release(&value, 1);
            break;
        case COUA_MISSING: {
            const char *made = make();
            printf("made: %s\n", made);
            if (coua_store(cache, COUA_SET, key, strlen(key), made, strlen(made), 0, 60, 0, &error) < 0) {
                fprintf(stderr, "not stored: %s\n", error.message);
            }
            break;
        }
        default:
            /* A cache that fails is a miss. */
            fprintf(stderr, "no cache: %s\nmade: %s\n", error.message, make());
        }
    }
    coua_close(cache);
    return 0;
}
