/* Every function of couaclient.h against the server that is named; 1 at the first surprise. */
#include <couaclient.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(coua_error) == 256, "coua_error");
_Static_assert(sizeof(coua_value) == 3 * sizeof(void *) + 16, "coua_value");
_Static_assert(sizeof(coua_slice) == 2 * sizeof(void *), "coua_slice");

static coua_error error;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, error.message);                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define TEXT(text) (text), sizeof(text) - 1

static int32_t set(coua_client *cache, const char *key, const char *value) {
    return coua_store(cache, COUA_SET, key, strlen(key), value, strlen(value), 0, 0, 0, &error);
}

static void holds(coua_client *cache, const char *key, const char *expected) {
    coua_value value;
    CHECK(coua_get(cache, key, strlen(key), &value, &error) == COUA_OK && value.status == COUA_OK);
    CHECK(value.len == strlen(expected) && memcmp(value.bytes, expected, value.len) == 0);
    coua_value_release(&value, 1);
    CHECK(value.bytes == NULL && value.lease == NULL);
    /* Once more is allowed. */
    coua_value_release(&value, 1);
}

static void stores(coua_client *cache) {
    coua_value value;
    CHECK(coua_get(cache, TEXT("s"), &value, &error) == COUA_MISSING);
    CHECK(value.bytes == NULL && value.lease == NULL && value.status == COUA_MISSING);
    CHECK(coua_store(cache, COUA_REPLACE, TEXT("s"), TEXT("x"), 0, 0, 0, &error) == COUA_NOT_STORED);
    CHECK(coua_store(cache, COUA_APPEND, TEXT("s"), TEXT("x"), 0, 0, 0, &error) == COUA_NOT_STORED);
    CHECK(coua_store(cache, COUA_CAS, TEXT("s"), TEXT("x"), 0, 0, 7, &error) == COUA_MISSING);
    CHECK(coua_store(cache, COUA_ADD, TEXT("s"), TEXT("b"), 7, 0, 0, &error) == COUA_OK);
    CHECK(coua_store(cache, COUA_ADD, TEXT("s"), TEXT("x"), 0, 0, 0, &error) == COUA_NOT_STORED);
    CHECK(coua_store(cache, COUA_APPEND, TEXT("s"), TEXT("c"), 0, 0, 0, &error) == COUA_OK);
    CHECK(coua_store(cache, COUA_PREPEND, TEXT("s"), TEXT("a"), 0, 0, 0, &error) == COUA_OK);
    holds(cache, "s", "abc");
    CHECK(coua_get(cache, TEXT("s"), &value, &error) == COUA_OK && value.client_flags == 7 && value.cas != 0);
    CHECK(coua_store(cache, COUA_CAS, TEXT("s"), TEXT("new"), 0, 0, value.cas, &error) == COUA_OK);
    CHECK(coua_store(cache, COUA_CAS, TEXT("s"), TEXT("x"), 0, 0, value.cas, &error) == COUA_EXISTS);
    /* What is lent does not change with the item. */
    CHECK(value.len == 3 && memcmp(value.bytes, "abc", 3) == 0);
    coua_value_release(&value, 1);
    holds(cache, "s", "new");
    CHECK(set(cache, "s", "") == COUA_OK);
    holds(cache, "s", "");
    CHECK(coua_delete(cache, TEXT("s"), &error) == COUA_OK);
    CHECK(coua_delete(cache, TEXT("s"), &error) == COUA_MISSING);
}

static void large(coua_client *cache) {
    size_t len = 900 * 1000;
    uint8_t *bytes = malloc(len);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t) (i * 31 + i / 251);
    }
    CHECK(coua_store(cache, COUA_SET, TEXT("large"), bytes, len, UINT32_MAX, 0, 0, &error) == COUA_OK);
    coua_value value;
    CHECK(coua_get(cache, TEXT("large"), &value, &error) == COUA_OK);
    CHECK(value.len == len && memcmp(value.bytes, bytes, len) == 0 && value.client_flags == UINT32_MAX);
    coua_value_release(&value, 1);
    free(bytes);
}

static void expiries(coua_client *cache) {
    coua_value value;
    CHECK(coua_touch(cache, TEXT("e"), 100, &error) == COUA_MISSING);
    CHECK(coua_get_and_touch(cache, TEXT("e"), 100, &value, &error) == COUA_MISSING);
    CHECK(set(cache, "e", "v") == COUA_OK);
    CHECK(coua_touch(cache, TEXT("e"), 100, &error) == COUA_OK);
    CHECK(coua_get_and_touch(cache, TEXT("e"), 100, &value, &error) == COUA_OK && value.len == 1);
    coua_value_release(&value, 1);
    CHECK(coua_touch(cache, TEXT("e"), -1, &error) == COUA_OK);
    CHECK(coua_get(cache, TEXT("e"), &value, &error) == COUA_MISSING);
    CHECK(coua_touch(cache, TEXT("e"), INT64_MAX, &error) == COUA_INVALID);
}

static void numbers(coua_client *cache) {
    uint64_t number = 0, initial = 40;
    CHECK(coua_increment(cache, TEXT("n"), 2, NULL, 0, &number, &error) == COUA_MISSING);
    CHECK(coua_increment(cache, TEXT("n"), 2, &initial, 0, &number, &error) == COUA_OK && number == 40);
    CHECK(coua_increment(cache, TEXT("n"), 2, &initial, 0, &number, &error) == COUA_OK && number == 42);
    CHECK(coua_increment(cache, TEXT("n"), 2, NULL, 0, &number, &error) == COUA_OK && number == 44);
    CHECK(coua_decrement(cache, TEXT("n"), 50, NULL, 0, &number, &error) == COUA_OK && number == 0);
    CHECK(coua_decrement(cache, TEXT("n"), 1, &initial, 0, &number, &error) == COUA_OK && number == 0);
    CHECK(set(cache, "n", "text") == COUA_OK);
    CHECK(coua_increment(cache, TEXT("n"), 1, NULL, 0, &number, &error) == COUA_REFUSED);
    CHECK(error.status == COUA_REFUSED && error.cause == COUA_CAUSE_NONE);
    CHECK(strstr(error.message, "CLIENT_ERROR") != NULL);
}

enum { MANY = 700 };

static void many(coua_client *cache) {
    static char names[MANY][16];
    static coua_slice keys[MANY];
    static coua_value values[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "many:%d", i);
        keys[i] = (coua_slice) {(const uint8_t *) names[i], strlen(names[i])};
        if (i % 3 != 0) {
            CHECK(set(cache, names[i], names[i]) == COUA_OK);
        }
    }
    CHECK(coua_get_many(cache, keys, MANY, values, &error) == COUA_OK);
    for (int i = 0; i < MANY; i++) {
        CHECK(values[i].status == (i % 3 != 0 ? COUA_OK : COUA_MISSING));
        CHECK(i % 3 == 0 || (values[i].len == keys[i].len && memcmp(values[i].bytes, names[i], keys[i].len) == 0));
    }
    coua_value_release(values, MANY);
    /* A key that cannot be sent fails alone. */
    keys[1] = (coua_slice) {(const uint8_t *) "a b", 3};
    CHECK(coua_get_many(cache, keys, 3, values, &error) == COUA_INVALID && error.status == COUA_INVALID);
    CHECK(values[0].status == COUA_MISSING && values[1].status == COUA_INVALID && values[2].status == COUA_OK);
    coua_value_release(values, 3);
    CHECK(coua_get_many(cache, NULL, 0, NULL, &error) == COUA_OK);
}

static void wrong(coua_client *cache) {
    coua_value value;
    coua_client *none = cache;
    char key[251];
    memset(key, 'k', sizeof key);
    CHECK(coua_open("a b", NULL, &none, &error) == COUA_INVALID && none == NULL);
    CHECK(coua_open(NULL, NULL, &none, &error) == COUA_INVALID);
    CHECK(coua_open("\xff", NULL, &none, &error) == COUA_INVALID);
    CHECK(coua_open("a", "speed=9", &none, &error) == COUA_INVALID && strstr(error.message, "speed") != NULL);
    CHECK(coua_open("a", NULL, NULL, &error) == COUA_INVALID);
    CHECK(coua_get(NULL, TEXT("k"), &value, &error) == COUA_INVALID && value.lease == NULL);
    CHECK(coua_get(cache, TEXT("k"), NULL, &error) == COUA_INVALID);
    CHECK(coua_get(cache, NULL, 3, &value, &error) == COUA_INVALID);
    CHECK(coua_get(cache, NULL, 0, &value, &error) == COUA_INVALID);
    CHECK(coua_get(cache, key, sizeof key, &value, &error) == COUA_INVALID);
    CHECK(coua_get(cache, key, SIZE_MAX, &value, &error) == COUA_INVALID);
    CHECK(coua_get_many(cache, NULL, 3, &value, &error) == COUA_INVALID);
    CHECK(coua_store(cache, 6, TEXT("k"), TEXT("v"), 0, 0, 0, &error) == COUA_INVALID);
    CHECK(coua_ask_servers(cache, "secrets", &value, &error) == COUA_INVALID);
    /* Nobody needs to want to know. */
    CHECK(coua_get(cache, NULL, 0, &value, NULL) == COUA_INVALID);
    coua_value_release(NULL, 3);
    coua_close(NULL);
}

static void nobody_there(void) {
    coua_client *cache;
    coua_value value;
    /* Port 1 of this machine refuses. */
    CHECK(coua_open("127.0.0.1:1", "ejection_failures=1000", &cache, &error) == COUA_OK);
    CHECK(coua_get(cache, TEXT("k"), &value, &error) == COUA_NOT_SENT && error.cause == COUA_CAUSE_CONNECT);
    CHECK(set(cache, "k", "v") == COUA_NOT_SENT);
    CHECK(coua_ask_servers(cache, "version", &value, &error) == COUA_OK);
    CHECK(value.len > 0 && strncmp((const char *) value.bytes, "127.0.0.1:1 error ", 18) == 0);
    coua_value_release(&value, 1);
    coua_close(cache);
}

static void servers(coua_client *cache) {
    coua_value value;
    CHECK(coua_ask_servers(cache, "version", &value, &error) == COUA_OK);
    CHECK(memchr(value.bytes, '\n', value.len) != NULL);
    coua_value_release(&value, 1);
    CHECK(coua_ask_servers(cache, "stats", &value, &error) == COUA_OK && value.len > 500);
    coua_value_release(&value, 1);
    CHECK(coua_ask_servers(cache, "stats settings", &value, &error) == COUA_OK && value.len > 500);
    coua_value_release(&value, 1);
    CHECK(set(cache, "f", "v") == COUA_OK);
    CHECK(coua_flush_all(cache, 0, &error) == COUA_OK);
    CHECK(coua_get(cache, TEXT("f"), &value, &error) == COUA_MISSING);
}

static void *at_once(void *cache) {
    for (int i = 0; i < 200; i++) {
        coua_value value;
        coua_error own;
        if (coua_get(cache, TEXT("shared"), &value, &own) != COUA_OK || value.len != 6) {
            fprintf(stderr, "%d %s\n", own.status, own.message);
            return "a get of many threads went wrong";
        }
        coua_value_release(&value, 1);
    }
    return NULL;
}

static void threads(coua_client *cache) {
    pthread_t all[8];
    CHECK(set(cache, "shared", "shared") == COUA_OK);
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&all[i], NULL, at_once, cache) == 0);
    }
    for (int i = 0; i < 8; i++) {
        void *wrong;
        CHECK(pthread_join(all[i], &wrong) == 0 && wrong == NULL);
    }
}

/* The server answers gets and keeps the answers to stores to itself: what is known of each. */
static void without_answers(coua_client *cache) {
    coua_value value;
    CHECK(coua_get(cache, TEXT("k"), &value, &error) == COUA_OK);
    coua_value_release(&value, 1);
    CHECK(set(cache, "k", "v") == COUA_OUTCOME_UNKNOWN);
    CHECK(error.status == COUA_OUTCOME_UNKNOWN && error.cause == COUA_CAUSE_TIMEOUT);
}

/* With a login that is right, or one that is not. */
static void logs_in(coua_client *cache, int is_right) {
    if (is_right) {
        CHECK(set(cache, "k", "v") == COUA_OK);
        holds(cache, "k", "v");
    } else {
        CHECK(set(cache, "k", "v") == COUA_NOT_SENT && error.cause == COUA_CAUSE_TURNED_AWAY);
        CHECK(strstr(error.message, "authentication") != NULL && strstr(error.message, "wrong") == NULL);
    }
}

/* To a server whose certificate nobody vouches for. */
static void untrusted(coua_client *cache) {
    coua_value value;
    CHECK(set(cache, "k", "v") == COUA_NOT_SENT && error.cause == COUA_CAUSE_TLS);
    CHECK(strstr(error.message, "TLS: invalid peer certificate") != NULL);
    CHECK(coua_get(cache, TEXT("k"), &value, &error) == COUA_NOT_SENT);
}

/* To a server that wants a certificate and is shown none. */
static void unknown(coua_client *cache) {
    CHECK(set(cache, "k", "v") < 0 && error.cause == COUA_CAUSE_TLS);
    CHECK(strstr(error.message, "CertificateRequired") != NULL);
}

/* How many servers there are. */
static void count(coua_client *cache, size_t expected) {
    coua_value value;
    size_t lines = 0;
    CHECK(coua_ask_servers(cache, "version", &value, &error) == COUA_OK);
    for (size_t at = 0; at < value.len; at++) {
        lines += value.bytes[at] == '\n';
    }
    coua_value_release(&value, 1);
    CHECK(lines == expected);
}

static void all(coua_client *cache) {
    stores(cache);
    large(cache);
    expiries(cache);
    numbers(cache);
    many(cache);
    wrong(cache);
    nobody_there();
    threads(cache);
    servers(cache);
}

/* SERVER [WHAT [OPTIONS]] */
int main(int argc, char **argv) {
    coua_client *cache;
    const char *what = argc >= 3 ? argv[2] : "all";
    CHECK(coua_abi_version() == COUA_ABI_VERSION && argc >= 2);
    int32_t status = coua_open(argv[1], argc >= 4 ? argv[3] : NULL, &cache, &error);
    if (strcmp(what, "refused") == 0) {
        /* Nothing was made, and the message says why. */
        CHECK(status < 0 && cache == NULL);
        puts(error.message);
        return 0;
    }
    CHECK(status == COUA_OK);
    if (strcmp(what, "all") == 0) {
        all(cache);
    } else if (strcmp(what, "mute") == 0) {
        without_answers(cache);
    } else if (strcmp(what, "untrusted") == 0) {
        untrusted(cache);
    } else if (strcmp(what, "unknown") == 0) {
        unknown(cache);
    } else if (strcmp(what, "login") == 0 || strcmp(what, "no-login") == 0) {
        logs_in(cache, strcmp(what, "login") == 0);
    } else {
        count(cache, strtoul(what, NULL, 10));
    }
    coua_close(cache);
    puts("all well");
    return 0;
}
