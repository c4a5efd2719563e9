/* Files as memory: what is stored gets to the file, what is loaded comes from it, and the pool's ceiling holds. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 256, POOL_PAGES = 32 };

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
    return quire_pool_create((size_t)POOL_PAGES * PAGE, NULL, &pool) == QUIRE_OK ? pool : NULL;
}

static quire_pool_counts counts_of(const quire_pool *pool) {
    quire_pool_counts counts = {.struct_size = sizeof counts};
    if (quire_pool_stats(pool, &counts) != QUIRE_OK)
        counts.capacity_bytes = 0;
    return counts;
}

static void a_file_larger_than_its_pool_is_loaded_and_stored(uint64_t flags) {
    quire_pool *pool = small_pool();
    quire_mapping *map;
    quire_map_options options = {.struct_size = sizeof options, .flags = flags};
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_map(pool, path, &options, &map));
    CHECK(quire_map_len(map) == (uint64_t)PAGES * PAGE);
    volatile uint64_t *words = quire_map_ptr(map);
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t page = 0; page < PAGES; page++) {
            CHECK(words[page * PAGE / 8] == page + round);
            words[page * PAGE / 8]++;
        }
    CHECK(quire_map_resident(map) <= (uint64_t)POOL_PAGES * PAGE);
    quire_pool_counts counts = counts_of(pool);
    /* The second tier takes its part of the capacity once pages have to make room. */
    CHECK(counts.capacity_bytes <= (uint64_t)POOL_PAGES * PAGE && counts.resident_bytes <= counts.capacity_bytes);
    CHECK(counts.capacity_bytes >= (uint64_t)POOL_PAGES * PAGE / 2);
    CHECK(counts.misses >= PAGES && counts.evicted_pages > PAGES && counts.written_pages > PAGES && counts.maps == 1);
    CHECK_OK(quire_map_sync(map));
    for (uint64_t page = 0; page < PAGES; page++)
        CHECK(in_file(page * PAGE) == page + 3);
    words[1] = 77;
    CHECK_OK(quire_map_flush(map, 8, 8));
    CHECK(in_file(8) == 77);
    words[2] = 78;
    CHECK_OK(quire_map_release(map));
    CHECK(in_file(16) == 78);
    CHECK_OK(quire_pool_release(pool));
}

static void a_file_is_made_and_grows_and_a_map_outlives_the_handle_of_its_pool(void) {
    quire_pool *pool = small_pool();
    quire_mapping *map;
    CHECK(pool != NULL);
    CHECK(unlink(path) == 0 || errno == ENOENT);
    CHECK_STATUS(QUIRE_SYSTEM, quire_map(pool, path, NULL, &map));
    CHECK(map == NULL && strstr(quire_last_error(), path) != NULL);
    quire_map_options options = {.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE, .reserve_bytes = 8 * PAGE};
    CHECK_OK(quire_map(pool, path, &options, &map));
    CHECK_OK(quire_pool_release(pool));
    CHECK(quire_map_len(map) == 0);
    CHECK_OK(quire_map_grow(map, 8 * PAGE));
    /* What is reserved is rounded up to whole huge pages' addresses at most. */
    CHECK_FAILS(QUIRE_INVALID, "reserve", quire_map_grow(map, (uint64_t)1 << 30));
    unsigned char *bytes = quire_map_ptr(map);
    CHECK(bytes[8 * PAGE - 1] == 0);
    memset(bytes, 5, 8 * PAGE);
    CHECK_OK(quire_map_sync(map));
    CHECK(in_file(7 * PAGE) == 0x0505050505050505u);
    CHECK_OK(quire_map_release(map));
}

/* The trap of faults that raise a signal, and the way out. */
static void system_calls_wait_for_pages_only_where_they_are_served(void) {
    int ends[2];
    CHECK(make_file() && pipe(ends) == 0);
    for (uint64_t flags = 0; flags <= QUIRE_MAP_SERVED; flags += QUIRE_MAP_SERVED) {
        quire_pool *pool = small_pool();
        quire_mapping *map;
        quire_map_options options = {.struct_size = sizeof options, .flags = flags};
        CHECK(pool != NULL);
        quire_status status = quire_map(pool, path, &options, &map);
        if (status == QUIRE_UNSUPPORTED) {
            skip(quire_last_error());
            CHECK_OK(quire_pool_release(pool));
            continue;
        }
        CHECK(status == QUIRE_OK);
        char *bytes = quire_map_ptr(map);
        errno = 0;
        ssize_t count = write(ends[1], bytes + 9 * PAGE, 8);
        if (flags == 0) {
            CHECK(count == -1 && errno == EFAULT);
        } else {
            uint64_t number;
            CHECK(count == 8 && read(ends[0], &number, 8) == 8 && number == 9);
            CHECK(write(ends[1], "abcdefgh", 8) == 8 && read(ends[0], bytes + 20 * PAGE + 3, 8) == 8);
            CHECK(memcmp(bytes + 20 * PAGE + 3, "abcdefgh", 8) == 0);
        }
        CHECK_OK(quire_map_release(map));
        CHECK_OK(quire_pool_release(pool));
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void pages_that_had_to_make_room_go_to_a_second_tier(void) {
    quire_pool *pool = NULL;
    quire_mapping *map = NULL;
    quire_pool_options options = {
        .struct_size = sizeof options, .second_tier_bytes = 4 * (uint64_t)PAGES * PAGE, .look_in_page_cache = 1};
    CHECK(make_file());
    CHECK_OK(quire_pool_create((size_t)POOL_PAGES * PAGE, &options, &pool));
    CHECK_OK(quire_map(pool, path, NULL, &map));
    volatile uint64_t *words = quire_map_ptr(map);
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t step = 0; step < PAGES; step++) {
            uint64_t page = step * 37 % PAGES;
            CHECK(words[page * PAGE / 8] == page + round * (page % 3 == 0));
            if (page % 3 == 0)
                words[page * PAGE / 8]++;
        }
    quire_pool_counts counts = counts_of(pool);
    quire_path_counts paths = {.struct_size = sizeof paths};
    CHECK_OK(quire_pool_paths(pool, &paths));
    CHECK(paths.evict_clean > 0 && counts.misses >= paths.read_second_tier + paths.read_page_cache);
    CHECK(counts.resident_bytes <= counts.capacity_bytes);
    CHECK_OK(quire_map_release(map));
    CHECK_OK(quire_pool_release(pool));
    options.second_tier_bytes = QUIRE_SECOND_TIER_OFF;
    options.second_tier_compression = QUIRE_COMPRESSION_ZSTD;
    CHECK_OK(quire_pool_create(MIB, &options, &pool));
    CHECK_OK(quire_pool_release(pool));
    options.second_tier_bytes = 0;
    options.second_tier_percent = 200;
    CHECK_OK(quire_pool_create(MIB, &options, &pool));
    CHECK_OK(quire_pool_release(pool));
    /* As a program passes it that was compiled before these two fields were there. */
    options = (quire_pool_options){.struct_size = offsetof(quire_pool_options, second_tier_percent)};
    CHECK_OK(quire_pool_create(MIB, &options, &pool));
    CHECK_OK(quire_pool_release(pool));
}

static void a_second_tier_of_the_capacity_gets_its_part_once_pages_have_to_make_room(void) {
    quire_pool *pool = NULL;
    quire_mapping *map = NULL;
    quire_pool_options options = {.struct_size = sizeof options, .second_tier_bytes = QUIRE_SECOND_TIER_AUTO};
    CHECK(make_file());
    CHECK_OK(quire_pool_create((size_t)PAGES / 2 * PAGE, &options, &pool));
    CHECK_OK(quire_map(pool, path, NULL, &map));
    volatile uint64_t *words = quire_map_ptr(map);
    CHECK(counts_of(pool).capacity_bytes == (uint64_t)PAGES / 2 * PAGE);
    for (int round = 0; round < 100000 && counts_of(pool).capacity_bytes == (uint64_t)PAGES / 2 * PAGE; round++)
        for (uint64_t page = 0; page < PAGES; page++)
            CHECK(words[page * PAGE / 8] == page);
    CHECK(counts_of(pool).capacity_bytes < (uint64_t)PAGES / 2 * PAGE);
    CHECK_OK(quire_map_release(map));
    CHECK_OK(quire_pool_release(pool));
}

static void what_makes_no_sense_is_refused(void) {
    quire_pool *pool = (quire_pool *)path;
    quire_mapping *map = NULL;
    CHECK_FAILS(QUIRE_INVALID, "capacity_bytes", quire_pool_create(1, NULL, &pool));
    CHECK(pool == NULL);
    quire_pool_options crooked = {.struct_size = sizeof crooked, .page_bytes = 5000};
    CHECK_FAILS(QUIRE_INVALID, "page_bytes", quire_pool_create(MIB, &crooked, &pool));
    CHECK_STATUS(QUIRE_INVALID, quire_map(NULL, path, NULL, &map));
    CHECK(quire_map_ptr(NULL) == NULL && quire_map_len(NULL) == 0 && quire_map_resident(NULL) == 0);
    CHECK_STATUS(QUIRE_INVALID, quire_map_sync(NULL));
    CHECK_OK(quire_map_release(NULL));
    CHECK_OK(quire_pool_release(NULL));
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    CHECK_FAILS(QUIRE_INVALID, "path", quire_map(pool, NULL, NULL, &map));
    CHECK_FAILS(QUIRE_INVALID, "names no file", quire_map(pool, "/", NULL, &map));
    quire_map_options unknown = {.struct_size = sizeof unknown, .flags = 64};
    CHECK_FAILS(QUIRE_INVALID, "flags", quire_map(pool, path, &unknown, &map));
    quire_pool_counts unset = {0};
    CHECK_FAILS(QUIRE_INVALID, "sizeof", quire_pool_stats(pool, &unset));
    CHECK(make_file());
    CHECK_OK(quire_map(pool, path, NULL, &map));
    CHECK_STATUS(QUIRE_INVALID, quire_map_flush(map, (uint64_t)PAGES * PAGE, 1));
    CHECK_STATUS(QUIRE_INVALID, quire_map_flush(map, UINT64_MAX, 2));
    CHECK_OK(quire_map_release(map));
    CHECK_OK(quire_pool_release(pool));
}

struct part {
    volatile uint64_t *words;
    uint64_t first;
};

static void *add_up(void *argument) {
    struct part *part = argument;
    for (uint64_t step = 0; step < 4000; step++) {
        uint64_t page = (step * 7919 + part->first * 13) % PAGES;
        __atomic_fetch_add(&part->words[page * PAGE / 8 + 8], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void stores_of_many_threads_are_not_lost(uint64_t flags) {
    quire_pool *pool = small_pool();
    quire_mapping *map;
    quire_map_options options = {.struct_size = sizeof options, .flags = flags, .servers = 2};
    pthread_t threads[4];
    struct part parts[4];
    CHECK(pool != NULL && make_file());
    CHECK_OK(quire_map(pool, path, &options, &map));
    for (uint64_t i = 0; i < 4; i++) {
        parts[i] = (struct part){quire_map_ptr(map), i};
        CHECK(pthread_create(&threads[i], NULL, add_up, &parts[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(quire_map_release(map));
    CHECK_OK(quire_pool_release(pool));
    uint64_t sum = 0;
    for (uint64_t page = 0; page < PAGES; page++)
        sum += in_file(page * PAGE + 64);
    CHECK(sum == 4 * 4000);
}

static const char *kind(uint64_t flags) {
    return flags & QUIRE_MAP_SERVED ? "served" : "signalled";
}

/* Whether maps of that kind can be had here. If not, their tests count as one that is skipped. */
static bool can(uint64_t flags) {
    quire_pool *pool = small_pool();
    quire_mapping *map = NULL;
    quire_map_options options = {.struct_size = sizeof options, .flags = flags | QUIRE_MAP_CREATE};
    quire_status status = quire_map(pool, path, &options, &map);
    if (status == QUIRE_UNSUPPORTED) {
        skip(quire_last_error());
        note("maps", kind(flags));
    }
    quire_map_release(map);
    quire_pool_release(pool);
    return status != QUIRE_UNSUPPORTED;
}

int main(void) {
    snprintf(path, sizeof path, "quire-map-test-%ld", (long)getpid());
    for (uint64_t flags = 0; flags <= QUIRE_MAP_SERVED; flags += QUIRE_MAP_SERVED) {
        if (!can(flags))
            continue;
        a_file_larger_than_its_pool_is_loaded_and_stored(flags);
        note("a_file_larger_than_its_pool_is_loaded_and_stored", kind(flags));
        stores_of_many_threads_are_not_lost(flags);
        note("stores_of_many_threads_are_not_lost", kind(flags));
        if (flags == 0) {
            RUN(a_file_is_made_and_grows_and_a_map_outlives_the_handle_of_its_pool);
            RUN(system_calls_wait_for_pages_only_where_they_are_served);
            RUN(pages_that_had_to_make_room_go_to_a_second_tier);
            RUN(a_second_tier_of_the_capacity_gets_its_part_once_pages_have_to_make_room);
            RUN(what_makes_no_sense_is_refused);
        }
    }
    unlink(path);
    return finish();
}
