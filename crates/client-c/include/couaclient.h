/*
 * A client for coua and memcached: coua-client for C.
 *
 * A client may be used by many threads at once. Every function is synchronous; it takes no longer than the
 * options say. Keys and values are any bytes with a length, not strings that a zero ends.
 *
 * Every function that can fail gives a status: 0 and above are results, below 0 are errors. An error says
 * whether the server may have executed the request. With `error`, which may be NULL, the caller also learns
 * the cause and a message.
 */
#ifndef COUACLIENT_H
#define COUACLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a program that was compiled with an older header would go wrong. */
#define COUA_ABI_VERSION 1

/* Results. */
#define COUA_OK 0         /* done, or found */
#define COUA_MISSING 1    /* there is no such item */
#define COUA_NOT_STORED 2 /* add: there is an item; replace, append, prepend: there is none */
#define COUA_EXISTS 3     /* cas: the item has changed */

/* Errors. */
#define COUA_INVALID (-1)         /* cannot be sent: a key, an option, a pointer; nothing was done */
#define COUA_NOT_SENT (-2)        /* the server has not got all of it; nothing was done */
#define COUA_INTERRUPTED (-3)     /* no answer to a request that only reads: ask again */
#define COUA_OUTCOME_UNKNOWN (-4) /* sent, and whether it was done is not known */
#define COUA_REFUSED (-5)         /* the server answered an error, or no list of servers; nothing was done */

/* Why a request has no answer, in coua_error.cause. */
#define COUA_CAUSE_NONE 0
#define COUA_CAUSE_CONNECT 1     /* no connection could be opened */
#define COUA_CAUSE_IO 2          /* the connection failed */
#define COUA_CAUSE_CLOSED 3      /* the server closed it */
#define COUA_CAUSE_TIMEOUT 4     /* no answer in time */
#define COUA_CAUSE_PROTOCOL 5    /* what came is no answer to the request */
#define COUA_CAUSE_BUSY 6        /* all connections were in use until time ran out */
#define COUA_CAUSE_EJECTED 7     /* the server failed lately and is left alone for a while */
#define COUA_CAUSE_TURNED_AWAY 8 /* the server refused the new connection */
#define COUA_CAUSE_TLS 9         /* encryption failed: a certificate that nobody vouches for, for one */

#define COUA_MESSAGE_LEN 248

/* An error. The message ends with a zero; a longer one is cut. */
typedef struct coua_error {
    int32_t status;
    int32_t cause;
    char message[COUA_MESSAGE_LEN];
} coua_error;

/* A client of one or more servers. */
typedef struct coua_client coua_client;

/* Bytes of the caller's. */
typedef struct coua_slice {
    const uint8_t *bytes;
    size_t len;
} coua_slice;

/*
 * A value that was received. `bytes` is lent until coua_value_release: read it in place. Without a value,
 * `bytes` and `lease` are NULL.
 */
typedef struct coua_value {
    const uint8_t *bytes;
    size_t len;
    uint64_t cas;          /* 0 where it was not asked for */
    uint32_t client_flags; /* what was stored beside the value */
    int32_t status;        /* COUA_OK, COUA_MISSING or an error */
    void *lease;           /* the library's */
} coua_value;

/* When a value is stored. */
#define COUA_SET 0     /* always */
#define COUA_ADD 1     /* if there is no such item */
#define COUA_REPLACE 2 /* if there is one */
#define COUA_APPEND 3  /* behind the value of an item that is there */
#define COUA_PREPEND 4 /* in front of it */
#define COUA_CAS 5     /* if the item still has this CAS */

/* The version of the interface that the library has: compare it with COUA_ABI_VERSION. */
uint32_t coua_abi_version(void);

/*
 * Makes a client of servers in a list that commas separate: HOST, HOST:PORT, [IPV6]:PORT or unix:/PATH.
 * Connections are opened when they are needed. With `discovery`, the servers are asked for at once, and later by a
 * thread.
 *
 * `options` may be NULL, else it is words that blanks separate:
 *   operation_timeout_ms=N    2500   the longest an operation takes, each of at most two attempts
 *   connect_timeout_ms=N      1000
 *   connections=N             16     the most to one server
 *   distribution=NAME         ketama, or ketama_spymemcached, or modula
 *   failover=NAME             redistribute, or fail_fast
 *   dialect=NAME              ask, or meta, or classic
 *   binary_keys=yes|no        no     keys with blanks and control characters
 *   value_len_max=N           67108864
 *   user=NAME password=TEXT          log in; %20 stands for a blank, %25 for a percent sign
 *   tls_ca_file=PATH                 encrypt, and trust these authorities (PEM); %20 stands for a blank
 *   tls_cert_file=PATH tls_key_file=PATH
 *                                    the client's own certificate and key (PEM)
 *   tls_server_name=NAME             whose certificate servers must show; by default the host's, as it is written
 *   discovery=NAME                   cluster: `servers` are asked which servers there are (config get cluster);
 *                                    names: each address of their names is a server
 *   discovery_interval_ms=N   60000
 *   ejection_failures=N       2      failures in a row after which a server is left alone
 *   ejection_wait_min_ms=N    1000   for how long at first
 *   ejection_wait_max_ms=N    30000  and at most
 */
int32_t coua_open(const char *servers, const char *options, coua_client **client, coua_error *error);

/* What an observer is told. */
#define COUA_EVENT_CONNECTED 0 /* a connection is open */
#define COUA_EVENT_LOST 1      /* a connection that was open has failed, or the server has closed it */
#define COUA_EVENT_EJECTED 2   /* the server has failed several times in a row and is left alone for a while */
#define COUA_EVENT_RETURNED 3  /* a server that was ejected has answered */

/*
 * Called in the middle of operations, by many threads at once, with the address of a server and one of the events:
 * it must be quick and must not use the client. `server` is text for the call alone.
 */
typedef void (*coua_observer)(void *context, const char *server, int32_t event);

/* As coua_open. `observer`, which may be NULL, is called with `context` until coua_close has returned. */
int32_t coua_open_observed(const char *servers, const char *options, coua_observer observer, void *context,
                           coua_client **client, coua_error *error);

/* Ends a client, whom no thread uses any more. NULL is allowed. What was received stays lent. */
void coua_close(coua_client *client);

/* The value of an item, with its CAS. COUA_OK, COUA_MISSING, or an error. */
int32_t coua_get(coua_client *client, const void *key, size_t key_len, coua_value *value, coua_error *error);

/* As coua_get, and changes when the item expires. */
int32_t coua_get_and_touch(coua_client *client, const void *key, size_t key_len, int64_t expiry, coua_value *value,
                           coua_error *error);

/*
 * The values of `count` keys, each with a status of its own, without CAS. All servers are asked at once.
 * COUA_OK when all were answered, else the status of the first error, which `error` describes. Release the
 * values in either case.
 */
int32_t coua_get_many(coua_client *client, const coua_slice *keys, size_t count, coua_value *values,
                      coua_error *error);

/* Gives values back. One that has none, or was given back before, is allowed. */
void coua_value_release(coua_value *values, size_t count);

/*
 * Stores a value. `expiry`: 0 for never, negative for at once, up to 2592000 for seconds from now, above for
 * seconds since 1970. `cas` counts only with COUA_CAS. COUA_OK, COUA_NOT_STORED, COUA_EXISTS, COUA_MISSING (with
 * COUA_CAS), or an error.
 */
int32_t coua_store(coua_client *client, int32_t mode, const void *key, size_t key_len, const void *value,
                   size_t value_len, uint32_t client_flags, int64_t expiry, uint64_t cas, coua_error *error);

/* Deletes an item. COUA_OK, COUA_MISSING, or an error. */
int32_t coua_delete(coua_client *client, const void *key, size_t key_len, coua_error *error);

/* Changes when an item expires. COUA_OK, COUA_MISSING, or an error. */
int32_t coua_touch(coua_client *client, const void *key, size_t key_len, int64_t expiry, coua_error *error);

/*
 * Adds to a decimal number, which wraps at 64 bits, and writes the new one to `number`. COUA_OK, COUA_MISSING,
 * or an error. With `initial`, which may be NULL, a missing item becomes that number and expires at `expiry`.
 */
int32_t coua_increment(coua_client *client, const void *key, size_t key_len, uint64_t delta, const uint64_t *initial,
                       int64_t expiry, uint64_t *number, coua_error *error);

/* As coua_increment, but subtracts, and stops at 0. */
int32_t coua_decrement(coua_client *client, const void *key, size_t key_len, uint64_t delta, const uint64_t *initial,
                       int64_t expiry, uint64_t *number, coua_error *error);

/* Makes all items of all servers expire, in so many seconds. COUA_OK, or the first error. */
int32_t coua_flush_all(coua_client *client, uint32_t delay_seconds, coua_error *error);

/*
 * Asks every server: `what` is "version", or "stats", or "stats" and an argument. The value's bytes are lines
 * `SERVER NAME VALUE`, where NAME is `version` for the version, and `error` for a server without an answer.
 */
int32_t coua_ask_servers(coua_client *client, const char *what, coua_value *value, coua_error *error);

/*
 * Operations without waiting. Any threads submit them to a queue; one thread at a time calls coua_queue_wait, which
 * does all the sending and receiving and collects what is done. Without it nothing moves.
 */
typedef struct coua_queue coua_queue;

/* Operations; those below are of a store: COUA_SET to COUA_CAS. */
#define COUA_GET 6
#define COUA_GET_AND_TOUCH 7
#define COUA_GET_MANY 8
#define COUA_DELETE 9
#define COUA_TOUCH 10
#define COUA_INCREMENT 11
#define COUA_DECREMENT 12
#define COUA_FLUSH_ALL 13

/* An operation. What it does not need is 0. */
typedef struct coua_request {
    uint64_t token;         /* comes back with the completion */
    int32_t operation;
    uint32_t client_flags;  /* of a store */
    const void *key;
    size_t key_len;
    const void *value;      /* of a store */
    size_t value_len;
    const coua_slice *keys; /* of COUA_GET_MANY */
    size_t key_count;
    int64_t expiry;
    uint64_t number;         /* the CAS of COUA_CAS; what is added or subtracted; the seconds of COUA_FLUSH_ALL */
    const uint64_t *initial; /* what a missing number becomes, or NULL */
} coua_request;

/* What came of an operation. */
typedef struct coua_completion {
    uint64_t token;
    int32_t status;     /* as of the function that waits */
    int32_t cause;
    uint64_t number;    /* of COUA_INCREMENT and COUA_DECREMENT */
    coua_value value;   /* the value; with an error its message, which no zero ends */
    coua_value *values; /* of COUA_GET_MANY, a value for each key */
    size_t count;
} coua_completion;

/* Makes a queue; servers, options and observer are those of coua_open_observed, `connections` is 2 by default. */
int32_t coua_queue_open(const char *servers, const char *options, coua_observer observer, void *context,
                        coua_queue **queue, coua_error *error);

/* Ends a queue, which no thread uses any more. What is not done is given up. NULL is allowed. */
void coua_queue_close(coua_queue *queue);

/*
 * Takes an operation; its bytes are copied. COUA_OK, or an error: then there is no completion. With 16,384 that are
 * not collected it is COUA_NOT_SENT with COUA_CAUSE_BUSY.
 */
int32_t coua_queue_submit(coua_queue *queue, const coua_request *request, coua_error *error);

/*
 * Moves operations forward until some are done, the time is over or the queue is woken. How many completions were
 * written, `max` at most, or COUA_INVALID when another thread waits. Release them.
 */
int32_t coua_queue_wait(coua_queue *queue, coua_completion *completions, size_t max, uint32_t timeout_ms,
                        coua_error *error);

/* Has coua_queue_wait return, now or when it is called next. */
void coua_queue_wake(coua_queue *queue);

/* Gives completions back with all that they lend. One that was given back before is allowed. */
void coua_completions_release(coua_completion *completions, size_t count);

#ifdef __cplusplus
}
#endif

#endif
