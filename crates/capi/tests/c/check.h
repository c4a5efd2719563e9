/* A test harness in a page: what a test program needs, and no more.
 *
 * A test is a function that ends early at the first CHECK that fails; main() lists them and returns finish(). One that can't be
 * done here says so by skip(). The last line is "N passed, N failed, N skipped", which `cargo xtask test` adds up.
 */
#ifndef CHECK_H
#define CHECK_H

#include <quire.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed_tests, failed_tests, skipped_tests;
static bool this_failed, this_skipped;

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

/* Says that the running test, or a part of it, can't be done here, and why; the test itself goes on or returns. Where CI is "true" the
 * machine is meant to have everything, and the test fails. */
static inline void skip(const char *why) {
    const char *ci = getenv("CI");
    if (ci != NULL && strcmp(ci, "true") == 0) {
        printf("skipped, but nothing may be skipped where CI=true: %s\n", why);
        this_failed = true;
    } else {
        printf("can't be done here: %s\n", why);
        this_skipped = true;
    }
}

/* Counts a test that has just run. */
static inline void note(const char *name, const char *of) {
    const char *end = this_failed ? "FAILED" : this_skipped ? "skipped" : "ok";
    printf("test %s%s%s ... %s\n", name, *of ? " of " : "", of, end);
    if (this_failed)
        failed_tests++;
    else if (this_skipped)
        skipped_tests++;
    else
        passed_tests++;
    this_failed = this_skipped = false;
}

#define RUN(test)                                                                                                     \
    do {                                                                                                              \
        test();                                                                                                       \
        note(#test, "");                                                                                              \
    } while (0)

/* Runs a test of a mechanism with every mechanism; with one that does not work here it is skipped. */
#define RUN_WITH_EACH(test)                                                                                           \
    do {                                                                                                              \
        for (int32_t mechanism = QUIRE_SCOOT; mechanism <= QUIRE_MEMCPY; mechanism++) {                               \
            char why[300];                                                                                            \
            if (quire_mechanism_supported(mechanism, why, sizeof why) != QUIRE_OK)                                    \
                skip(why);                                                                                            \
            else                                                                                                      \
                test(mechanism);                                                                                      \
            note(#test, quire_mechanism_name(mechanism));                                                             \
        }                                                                                                             \
    } while (0)

static inline int finish(void) {
    printf("%d passed, %d failed, %d skipped\n", passed_tests, failed_tests, skipped_tests);
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
