/* A test harness in a page: what a test program needs, and no more.
 *
 * A test is a function that ends early at the first CHECK that fails; main() lists them and returns finish(). The last
 * line is "N passed, N failed", which `cargo xtask test` adds up.
 */
#ifndef CHECK_H
#define CHECK_H

#include <quire.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int passed_tests, failed_tests;
static bool this_failed;

/* Ends the test, with what went wrong, unless the condition holds. */
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition, quire_last_error());     \
            this_failed = true;                                                                                       \
            return;                                                                                                   \
        }                                                                                                             \
    } while (0)

/* Ends the test unless a call returns the status. */
#define CHECK_STATUS(expected, call)                                                                                  \
    do {                                                                                                              \
        quire_status got = (call);                                                                                    \
        if (got != (expected)) {                                                                                      \
            printf("%s:%d: %s returned %s, not %s (last error: %s)\n", __FILE__, __LINE__, #call,                     \
                   quire_status_name(got), #expected, quire_last_error());                                            \
            this_failed = true;                                                                                       \
            return;                                                                                                   \
        }                                                                                                             \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(QUIRE_OK, call)

/* Ends the test unless a call fails with the status and with a message that contains the words. */
#define CHECK_FAILS(expected, words, call)                                                                            \
    do {                                                                                                              \
        CHECK_STATUS(expected, call);                                                                                 \
        CHECK(strstr(quire_last_error(), words) != NULL);                                                             \
    } while (0)

/* Counts a test that has just run. */
static inline void note(const char *name, const char *of) {
    printf("test %s%s%s ... %s\n", name, *of ? " of " : "", of, this_failed ? "FAILED" : "ok");
    if (this_failed)
        failed_tests++;
    else
        passed_tests++;
    this_failed = false;
}

#define RUN(test)                                                                                                     \
    do {                                                                                                              \
        test();                                                                                                       \
        note(#test, "");                                                                                              \
    } while (0)

/* Runs a test of a mechanism with every mechanism that works here. */
#define RUN_WITH_EACH(test)                                                                                           \
    do {                                                                                                              \
        for (int32_t mechanism = QUIRE_SCOOT; mechanism <= QUIRE_MEMCPY; mechanism++) {                               \
            char why[300];                                                                                            \
            if (quire_mechanism_supported(mechanism, why, sizeof why) != QUIRE_OK) {                                  \
                printf("skipped: %s\n", why);                                                                         \
                continue;                                                                                             \
            }                                                                                                         \
            test(mechanism);                                                                                          \
            note(#test, quire_mechanism_name(mechanism));                                                             \
        }                                                                                                             \
    } while (0)

static inline int finish(void) {
    printf("%d passed, %d failed\n", passed_tests, failed_tests);
    return failed_tests != 0;
}

/* The byte at an offset of a snapshot; -1 if it can't be read. */
static inline int byte_of(const quire_snapshot *snapshot, size_t offset) {
    unsigned char byte;
    return quire_read(snapshot, offset, &byte, 1) == QUIRE_OK ? byte : -1;
}

/* Writes a byte, announced as the barrier wants it. */
static inline void put(quire_range *range, size_t offset, unsigned char value) {
    if (quire_prepare_write(range, offset, 1) == QUIRE_OK)
        ((volatile unsigned char *)quire_range_base(range))[offset] = value;
}

#define MIB ((size_t)1 << 20)

#endif
