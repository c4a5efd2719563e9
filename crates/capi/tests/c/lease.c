/* Leases: bytes of a file in place, which stay what they were while the file is written and others need memory. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 128, POOL_PAGES = 32, PINNED_PAGES = 8 };

static char path[64];

/* A file of PAGES pages, each beginning with its number. */
static bool make_file(void) {
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0)
        return false;
    for (uint64_t page = 0; page < PAGES; page++)
        if (pwrite(file, &page, sizeof page, (off_t)(page * PAGE)) != sizeof page)
            return false;
    return ftruncate(file, (off_t)PAGES * PAGE) == 0 && close(file) == 0;
}

static uint64_t in_file(uint64_t offset) {
    uint64_t word = UINT64_MAX;
    int file = open(path, O_RDONLY);
    if (file < 0 || pread(file, &word, sizeof word, (off_t)offset) != sizeof word)
        return UINT64_MAX;
    return close(file) == 0 ? word : UINT64_MAX;
}

static quire_pool *small_pool(void) {
    quire_pool *pool = NULL;
    quire_pool_options options = {.struct_size = sizeof options, .patience_ms = 30, .lease_percent = 25};
    return quire_pool_create((size_t)POOL_PAGES * PAGE, &options, &pool) == QUIRE_OK ? pool : NULL;
}

static uint64_t leased_bytes(const quire_pool *pool) {
    quire_pool_counts counts = {.struct_size = sizeof counts};
    return quire_pool_stats(pool, &counts) == QUIRE_OK ? counts.leased_bytes : UINT64_MAX;
}

static uint64_t word_of(const quire_leased *lease, size_t offset) {
    uint64_t word;
    memcpy(&word, (const char *)quire_lease_ptr(lease) + offset, sizeof word);
    return word;
}

/* What a new lease of a page shows. */
static uint64_t now(const quire_file *file, uint64_t page) {
    quire_leased *lease;
    if (quire_lease(file, page * PAGE, sizeof(uint64_t), 0, &lease) != QUIRE_OK)
        return UINT64_MAX;
    uint64_t word = word_of(lease, 0);
    return quire_lease_release(lease) == QUIRE_OK ? word : UINT64_MAX;
}

static void a_lease_keeps_what_it_saw(void) {
    quire_pool *pool = small_pool();
    quire_file *file;
    quire_leased *lease;
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_file_open(pool, path, NULL, &file));
    CHECK(quire_file_len(file) == (uint64_t)PAGES * PAGE);
    CHECK_OK(quire_lease(file, 3 * PAGE, 3 * PAGE, 0, &lease));
    CHECK(quire_lease_len(lease) == 3 * PAGE && leased_bytes(pool) == 3 * PAGE);
    const void *first = quire_lease_ptr(lease);
    /* One write over the border of two pages, from bytes that are leased themselves. */
    CHECK_OK(quire_file_write(file, 4 * PAGE - 8, (const char *)first + PAGE - 8, 16));
    uint64_t word = 44;
    CHECK_OK(quire_file_write(file, 4 * PAGE, &word, sizeof word));
    for (uint64_t page = 0; page < PAGES; page++)
        CHECK(now(file, page) == (page == 4 ? 44 : page));
    CHECK_OK(quire_file_sync(file));
    CHECK(in_file(4 * PAGE) == 44);
    CHECK(quire_lease_ptr(lease) == first && word_of(lease, 0) == 3 && word_of(lease, PAGE) == 4);
    CHECK_OK(quire_lease_release(lease));
    CHECK(leased_bytes(pool) == 0 && now(file, 4) == 44);
    quire_pool_counts counts = {.struct_size = sizeof counts};
    CHECK_OK(quire_pool_stats(pool, &counts));
    CHECK(counts.lease_copies == 2 && counts.resident_bytes <= counts.capacity_bytes);
    CHECK_OK(quire_file_release(file));
    CHECK_OK(quire_pool_release(pool));
}

static void more_than_may_be_pinned_is_refused(void) {
    quire_pool *pool = small_pool();
    quire_file *file;
    quire_leased *held, *lease;
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_file_open(pool, path, NULL, &file));
    CHECK_OK(quire_lease(file, 0, PINNED_PAGES * PAGE, 0, &held));
    CHECK_FAILS(QUIRE_EXHAUSTED, "leases may pin", quire_lease(file, 20 * PAGE, 1, QUIRE_LEASE_TRY, &lease));
    CHECK(lease == NULL);
    CHECK_FAILS(QUIRE_EXHAUSTED, "leases may pin", quire_lease(file, 20 * PAGE, 1, 0, &lease));
    CHECK_OK(quire_lease_release(held));
    CHECK_OK(quire_lease(file, 20 * PAGE, 1, QUIRE_LEASE_TRY, &lease));
    CHECK_OK(quire_lease_release(lease));
    CHECK_OK(quire_file_release(file));
    CHECK_OK(quire_pool_release(pool));
}

static void *release_elsewhere(void *lease) {
    bool is_right = word_of(lease, 0) == 7 && quire_lease_release(lease) == QUIRE_OK;
    return is_right ? lease : NULL;
}

static void a_lease_outlives_its_file_and_its_pool_and_ends_in_any_thread(void) {
    quire_pool *pool = small_pool();
    quire_file *file;
    quire_leased *lease;
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_file_open(pool, path, NULL, &file));
    CHECK_OK(quire_lease(file, 7 * PAGE, 100, 0, &lease));
    uint64_t word = 99;
    CHECK_OK(quire_file_write(file, 9 * PAGE, &word, sizeof word));
    CHECK_OK(quire_file_release(file));
    CHECK_OK(quire_pool_release(pool));
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, release_elsewhere, lease) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result != NULL && in_file(9 * PAGE) == 99);
    CHECK_FAILS(QUIRE_INVALID, "lease", quire_lease_release(lease));
}

static void a_forked_child_reads_the_lease_and_may_not_call(void) {
    quire_pool *pool = small_pool();
    quire_file *file;
    quire_leased *lease, *other;
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_file_open(pool, path, NULL, &file));
    CHECK_OK(quire_lease(file, 7 * PAGE, PAGE, 0, &lease));
    const uint64_t *words = quire_lease_ptr(lease);
    pid_t child = fork();
    if (child == 0) {
        bool is_right = words[0] == 7 && quire_lease_release(lease) == QUIRE_INVALID &&
                        quire_lease(file, 0, 1, 0, &other) == QUIRE_INVALID;
        _exit(is_right ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(words[0] == 7);
    CHECK_OK(quire_lease_release(lease));
    CHECK_OK(quire_file_release(file));
    CHECK_OK(quire_pool_release(pool));
}

static void what_makes_no_sense_is_refused(void) {
    quire_pool *pool = small_pool();
    quire_file *file;
    quire_leased *lease;
    CHECK(pool != NULL && make_file());
    quire_map_options served = {.struct_size = sizeof served, .flags = QUIRE_MAP_SERVED};
    CHECK_FAILS(QUIRE_INVALID, "flags", quire_file_open(pool, path, &served, &file));
    CHECK_FAILS(QUIRE_INVALID, "path", quire_file_open(pool, NULL, NULL, &file));
    CHECK_OK(quire_file_open(pool, path, NULL, &file));
    CHECK_FAILS(QUIRE_INVALID, "flags", quire_lease(file, 0, 1, 2, &lease));
    CHECK_FAILS(QUIRE_INVALID, "lease", quire_lease(file, 0, 1, 0, NULL));
    CHECK_FAILS(QUIRE_INVALID, "file", quire_lease(NULL, 0, 1, 0, &lease));
    CHECK_STATUS(QUIRE_INVALID, quire_lease(file, (uint64_t)PAGES * PAGE, 1, 0, &lease));
    CHECK(lease == NULL);
    CHECK_OK(quire_lease(file, (uint64_t)PAGES * PAGE - 3, SIZE_MAX, 0, &lease));
    CHECK(quire_lease_len(lease) == 3);
    CHECK_OK(quire_lease_release(lease));
    uint64_t word = 1;
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_file_write(file, (uint64_t)PAGES * PAGE - 7, &word, sizeof word));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_file_write(file, UINT64_MAX, &word, sizeof word));
    CHECK_FAILS(QUIRE_INVALID, "bytes", quire_file_write(file, 0, NULL, 1));
    CHECK(quire_lease_ptr(NULL) == NULL && quire_lease_len(NULL) == 0 && quire_file_len(NULL) == 0);
    CHECK_OK(quire_lease_release(NULL));
    CHECK_OK(quire_file_release(NULL));
    CHECK_OK(quire_file_release(file));
    CHECK_FAILS(QUIRE_INVALID, "file", quire_file_sync(file));
    CHECK_OK(quire_pool_release(pool));
}

int main(void) {
    snprintf(path, sizeof path, "quire-lease-test-%ld", (long)getpid());
    RUN(a_lease_keeps_what_it_saw);
    RUN(more_than_may_be_pinned_is_refused);
    RUN(a_lease_outlives_its_file_and_its_pool_and_ends_in_any_thread);
    RUN(a_forked_child_reads_the_lease_and_may_not_call);
    RUN(what_makes_no_sense_is_refused);
    unlink(path);
    return finish();
}
