/* A signal every 100 microseconds, whose handler lets no call be restarted, during every call: none fails, and none hangs. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void storm(bool on) {
    struct sigaction action = {.sa_handler = count};
    struct itimerval timer = {{0, on ? 100 : 0}, {0, on ? 100 : 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void ranges_and_snapshots(int32_t mechanism) {
    enum { ROUNDS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        quire_range *range;
        quire_snapshot *snapshot, *copy;
        quire_stats stats = {.struct_size = sizeof stats};
        char why[300];
        static unsigned char bytes[65536];
        CHECK_OK(quire_mechanism_supported(mechanism, why, sizeof why));
        CHECK_OK(quire_range_create(4 * MIB, mechanism, NULL, &range));
        for (size_t at = 0; at < 4 * MIB; at += 4096)
            put(range, at, 1);
        CHECK_OK(quire_cut(range, &snapshot));
        for (size_t at = 0; at < 4 * MIB; at += 8192)
            put(range, at, 2);
        CHECK_OK(quire_snapshot_cut(snapshot, &copy));
        for (size_t at = 0; at < 4 * MIB; at += sizeof bytes) {
            CHECK_OK(quire_read(copy, at, bytes, sizeof bytes));
            CHECK(bytes[0] == 1 && bytes[4096] == 1);
        }
        CHECK_OK(quire_snapshot_release(snapshot));
        CHECK_OK(quire_range_settle(range));
        CHECK_OK(quire_range_stats(range, &stats));
        CHECK(byte_of(copy, 8192) == 1);
        CHECK_OK(quire_snapshot_release(copy));
        CHECK_OK(quire_range_release(range));
    }
}

static void pools_and_maps(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    for (int round = 0; round < 4; round++) {
        quire_pool *pool;
        quire_mapping *map;
        quire_map_options options = {.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE, .reserve_bytes = 16 * MIB};
        /* Faults of system calls take a right that not every user has. */
        options.flags |= round % 2 ? QUIRE_MAP_SERVED : 0;
        CHECK_OK(quire_pool_create(MIB, NULL, &pool));
        quire_status status = quire_map(pool, path, &options, &map);
        if (status == QUIRE_UNSUPPORTED) {
            skip(quire_last_error());
            CHECK_OK(quire_pool_release(pool));
            continue;
        }
        CHECK_OK(status);
        CHECK_OK(quire_map_grow(map, 4 * MIB));
        volatile unsigned char *bytes = quire_map_ptr(map);
        for (size_t at = 0; at < 4 * MIB; at += 4096)
            bytes[at] = (unsigned char)(at >> 12);
        CHECK_OK(quire_map_flush(map, 0, MIB));
        CHECK_OK(quire_map_sync(map));
        for (size_t at = 0; at < 4 * MIB; at += 4096)
            CHECK(bytes[at] == (unsigned char)(at >> 12));
        CHECK_OK(quire_map_release(map));
        CHECK_OK(quire_pool_release(pool));
        CHECK(unlink(path) == 0);
    }
}

int main(void) {
    strcpy(folder, "/var/tmp/quire-storm-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    storm(true);
    RUN_WITH_EACH(ranges_and_snapshots);
    RUN(pools_and_maps);
    storm(false);
    rmdir(folder);
    return signals > 0 ? finish() : 1;
}
