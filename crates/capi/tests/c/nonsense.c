/* Pools and maps that are told nonsense: sizes, counts and files that there are none of, and calls from a forked child. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static quire_status pool_with(size_t capacity_bytes, quire_pool_options options) {
    quire_pool *pool = (quire_pool *)&pool;
    options.struct_size = sizeof options;
    quire_status status = quire_pool_create(capacity_bytes, &options, &pool);
    if (status != QUIRE_OK && pool != NULL)
        return QUIRE_BUG;
    return quire_pool_release(pool) == QUIRE_OK ? status : QUIRE_BUG;
}

#define POOL(...) pool_with(MIB, (quire_pool_options){__VA_ARGS__})

static void pools_of_no_size_or_of_all_memory_are_told(void) {
    static const size_t sizes[] = {0, 1, 4 * 4096 - 1, ((size_t)1 << 46) + 1, (size_t)1 << 62, (size_t)-4096, (size_t)-1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK_FAILS(QUIRE_INVALID, "capacity_bytes", pool_with(sizes[i], (quire_pool_options){0}));
    CHECK_OK(pool_with(4 * 4096, (quire_pool_options){0}));
    CHECK_OK(pool_with((size_t)1 << 40, (quire_pool_options){0}));
    CHECK_STATUS(QUIRE_INVALID, pool_with(4 * 4096, (quire_pool_options){.page_bytes = 65536}));
}

static void pools_of_a_thousand_million_threads_are_told(void) {
    CHECK_FAILS(QUIRE_INVALID, "writers", POOL(.writers = 1000000000));
    CHECK_FAILS(QUIRE_INVALID, "writers", POOL(.writers = (size_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "queue_depth", POOL(.queue_depth = 129));
    CHECK_FAILS(QUIRE_INVALID, "queue_depth", POOL(.queue_depth = (size_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "dirty_percent", POOL(.dirty_percent = 101));
    CHECK_FAILS(QUIRE_INVALID, "dirty_percent", POOL(.dirty_percent = (uint64_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "patience_ms", POOL(.patience_ms = (uint64_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "second tier", POOL(.second_tier_bytes = 1));
    CHECK_FAILS(QUIRE_INVALID, "second_tier_bytes", POOL(.second_tier_bytes = (uint64_t)1 << 40));
    CHECK_FAILS(QUIRE_INVALID, "second_tier_bytes", POOL(.second_tier_bytes = QUIRE_SECOND_TIER_OFF - 1));
    CHECK_FAILS(QUIRE_INVALID, "second_tier_percent", POOL(.second_tier_percent = 65536));
    CHECK_FAILS(QUIRE_INVALID, "not both", POOL(.second_tier_percent = 1, .second_tier_bytes = QUIRE_SECOND_TIER_AUTO));
    CHECK_FAILS(QUIRE_INVALID, "quire_compression", POOL(.second_tier_compression = 4));
    CHECK_FAILS(QUIRE_INVALID, "look_in_page_cache", POOL(.look_in_page_cache = 2));
    CHECK_FAILS(QUIRE_INVALID, "page_bytes", POOL(.page_bytes = 4097));
    CHECK_FAILS(QUIRE_INVALID, "page_bytes", POOL(.page_bytes = (size_t)-1));
    CHECK_OK(POOL(.writers = 64, .queue_depth = 128, .dirty_percent = 100, .patience_ms = 1));
}

static void null_and_crooked_handles_are_told(void) {
    quire_pool_counts counts = {.struct_size = sizeof counts};
    quire_mapping *map = (quire_mapping *)&map;
    quire_pool *crooked = (quire_pool *)(void *)1;
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_create(MIB, NULL, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_stats(NULL, &counts));
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_stats(crooked, &counts));
    quire_path_counts paths = {.struct_size = sizeof paths};
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_paths(NULL, &paths));
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_release(crooked));
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_map(NULL, "x", NULL, &map));
    CHECK(map == NULL);
    CHECK_OK(quire_pool_release(NULL));
    CHECK(quire_map_ptr(NULL) == NULL && quire_map_len(NULL) == 0 && quire_map_resident(NULL) == 0);
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_grow(NULL, 1));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_flush(NULL, 0, 1));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_sync(NULL));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_release((quire_mapping *)(void *)1));
    CHECK_OK(quire_map_release(NULL));
    quire_pool *pool;
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    CHECK_FAILS(QUIRE_INVALID, "`counts`", quire_pool_stats(pool, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`path`", quire_map(pool, NULL, NULL, &map));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map(pool, "x", NULL, NULL));
    CHECK_OK(quire_pool_release(pool));
}

static void files_that_keep_nothing_are_told(void) {
    char fifo[96], sock[96];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(sock, sizeof sock, "%s/socket", folder);
    memcpy(address.sun_path, sock, sizeof sock);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(mkfifo(fifo, 0600) == 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    const char *paths[] = {"/proc/self/mem", "/proc/self/maps", "/proc/kcore", "/sys/kernel/mm/transparent_hugepage/enabled",
                           "/dev/zero", "/dev/null", "/dev/stdin/", fifo, sock, folder, "/", "", ".", "..", "/no/such/folder/file"};
    quire_pool *pool;
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        quire_mapping *map = (quire_mapping *)&map;
        quire_status status = quire_map(pool, paths[i], NULL, &map);
        if (status == QUIRE_OK)
            printf("%s was mapped\n", paths[i]);
        CHECK(status == QUIRE_INVALID || status == QUIRE_SYSTEM);
        CHECK(map == NULL && strlen(quire_last_error()) > 10);
    }
    quire_mapping *map;
    CHECK_FAILS(QUIRE_INVALID, "interface of the kernel", quire_map(pool, "/proc/self/mem", NULL, &map));
    CHECK_OK(quire_pool_release(pool));
    CHECK(close(listener) == 0 && unlink(fifo) == 0 && unlink(sock) == 0);
}

static void maps_of_all_addresses_and_a_million_servers_are_told(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    quire_pool *pool;
    quire_mapping *map;
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    quire_map_options options = {.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE};
    options.reserve_bytes = (uint64_t)-1;
    CHECK_FAILS(QUIRE_INVALID, "reserve_bytes", quire_map(pool, path, &options, &map));
    options.reserve_bytes = ((uint64_t)1 << 46) + 1;
    CHECK_FAILS(QUIRE_INVALID, "reserve_bytes", quire_map(pool, path, &options, &map));
    options.reserve_bytes = 0;
    options.flags |= QUIRE_MAP_SERVED;
    options.servers = 1000000;
    CHECK_FAILS(QUIRE_INVALID, "servers", quire_map(pool, path, &options, &map));
    options.servers = (uint64_t)-1;
    CHECK_FAILS(QUIRE_INVALID, "servers", quire_map(pool, path, &options, &map));
    CHECK(access(path, F_OK) != 0);
    options = (quire_map_options){.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE, .reserve_bytes = MIB};
    quire_status status = quire_map(pool, path, &options, &map);
    if (status == QUIRE_UNSUPPORTED) {
        skip(quire_last_error());
    } else {
        CHECK_OK(status);
        CHECK_STATUS(QUIRE_INVALID, quire_map_grow(map, (uint64_t)-1));
        CHECK_STATUS(QUIRE_INVALID, quire_map_grow(map, MIB + 4096));
        CHECK_OK(quire_map_grow(map, 8192));
        CHECK_FAILS(QUIRE_INVALID, "outside", quire_map_flush(map, 8193, 0));
        CHECK_FAILS(QUIRE_INVALID, "outside", quire_map_flush(map, 1, (uint64_t)-1));
        CHECK_FAILS(QUIRE_INVALID, "outside", quire_map_flush(map, (uint64_t)-1, 1));
        CHECK_OK(quire_map_flush(map, 8192, 0));
        CHECK_OK(quire_map_release(map));
        CHECK(unlink(path) == 0);
    }
    CHECK_OK(quire_pool_release(pool));
}

/* What a child gets for calls with what its parent has: refusals, at once. */
static int in_child(quire_pool *pool, quire_mapping *map) {
    quire_pool_counts counts = {.struct_size = sizeof counts};
    quire_mapping *other;
    int wrong = 0;
    wrong += quire_pool_stats(pool, &counts) != QUIRE_INVALID;
    wrong += quire_map(pool, "x", NULL, &other) != QUIRE_INVALID;
    wrong += strstr(quire_last_error(), "forked") == NULL;
    if (map != NULL) {
        wrong += quire_map_ptr(map) != NULL || quire_map_len(map) != 0 || quire_map_resident(map) != 0;
        wrong += quire_map_grow(map, 1 << 20) != QUIRE_INVALID;
        wrong += quire_map_sync(map) != QUIRE_INVALID || quire_map_flush(map, 0, 1) != QUIRE_INVALID;
        wrong += quire_map_release(map) != QUIRE_INVALID;
    }
    wrong += quire_pool_release(pool) != QUIRE_INVALID;
    /* A pool of its own it may have. */
    wrong += quire_pool_create(MIB, NULL, &pool) != QUIRE_OK || quire_pool_release(pool) != QUIRE_OK;
    return wrong;
}

static void a_forked_child_is_refused_what_its_parent_has(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    quire_pool *pool;
    quire_mapping *map = NULL;
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    quire_map_options options = {.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE, .reserve_bytes = MIB};
    quire_status mapped = quire_map(pool, path, &options, &map);
    CHECK(mapped == QUIRE_OK || mapped == QUIRE_UNSUPPORTED);
    if (mapped == QUIRE_UNSUPPORTED)
        skip(quire_last_error());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* Should it hang after all. */
        alarm(60);
        _exit(in_child(pool, map));
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (map != NULL) {
        CHECK_OK(quire_map_grow(map, 4096));
        *(volatile char *)quire_map_ptr(map) = 1;
        CHECK_OK(quire_map_sync(map));
        CHECK_OK(quire_map_release(map));
        CHECK(unlink(path) == 0);
    }
    CHECK_OK(quire_pool_release(pool));
}

int main(void) {
    strcpy(folder, "/var/tmp/quire-nonsense-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    RUN(pools_of_no_size_or_of_all_memory_are_told);
    RUN(pools_of_a_thousand_million_threads_are_told);
    RUN(null_and_crooked_handles_are_told);
    RUN(files_that_keep_nothing_are_told);
    RUN(maps_of_all_addresses_and_a_million_servers_are_told);
    RUN(a_forked_child_is_refused_what_its_parent_has);
    rmdir(folder);
    return finish();
}
