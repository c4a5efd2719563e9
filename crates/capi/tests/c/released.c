/* Handles that were released, never were handles, or are of another kind: each call says so, and none follows them. */
#define _GNU_SOURCE
#include "check.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

/* Every call with a range that is none. */
static void no_range(quire_range *range) {
    quire_snapshot *snapshot = (quire_snapshot *)&snapshot;
    quire_stats stats = {.struct_size = sizeof stats};
    CHECK(quire_range_base(range) == NULL && quire_range_size(range) == 0 && quire_range_why(range) == NULL);
    CHECK(strstr(quire_last_error(), "released") != NULL);
    CHECK(quire_range_mechanism(range) == QUIRE_BEST);
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_prepare_write(range, 0, 1));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_cut(range, &snapshot));
    CHECK(snapshot == NULL);
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_settle(range));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_stats(range, &stats));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_release(range));
}

static void no_snapshot(quire_snapshot *snapshot) {
    char byte;
    quire_snapshot *copy = (quire_snapshot *)&copy;
    CHECK(quire_snapshot_data(snapshot) == NULL && quire_snapshot_size(snapshot) == 0);
    CHECK(quire_snapshot_held_bytes(snapshot) == 0);
    CHECK_FAILS(QUIRE_INVALID, "released", quire_read(snapshot, 0, &byte, 1));
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_snapshot_cut(snapshot, &copy));
    CHECK(copy == NULL);
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_snapshot_release(snapshot));
}

static void no_pool(quire_pool *pool) {
    quire_pool_counts counts = {.struct_size = sizeof counts};
    quire_mapping *map = (quire_mapping *)&map;
    CHECK_FAILS(QUIRE_INVALID, "released", quire_pool_stats(pool, &counts));
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_map(pool, "x", NULL, &map));
    CHECK(map == NULL);
    CHECK_FAILS(QUIRE_INVALID, "`pool`", quire_pool_release(pool));
}

static void no_map(quire_mapping *map) {
    CHECK(quire_map_ptr(map) == NULL && quire_map_len(map) == 0 && quire_map_resident(map) == 0);
    CHECK_FAILS(QUIRE_INVALID, "released", quire_map_grow(map, 1));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_flush(map, 0, 0));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_sync(map));
    CHECK_FAILS(QUIRE_INVALID, "`map`", quire_map_release(map));
}

static void ranges_and_snapshots_that_were_released(int32_t mechanism) {
    quire_range *range, *other;
    quire_snapshot *snapshot, *later;
    CHECK_OK(quire_range_create(MIB, mechanism, NULL, &range));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_OK(quire_snapshot_release(snapshot));
    no_snapshot(snapshot);
    CHECK_OK(quire_cut(range, &later));
    no_snapshot(snapshot);
    CHECK_OK(quire_range_release(range));
    no_range(range);
    CHECK_OK(quire_range_create(MIB, mechanism, NULL, &other));
    no_range(range);
    CHECK_OK(quire_snapshot_release(later));
    no_snapshot(later);
    CHECK_OK(quire_range_release(other));
}

static void pools_and_maps_that_were_released(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    quire_pool *pool;
    quire_mapping *map = NULL;
    quire_map_options options = {.struct_size = sizeof options, .flags = QUIRE_MAP_CREATE, .reserve_bytes = MIB};
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    quire_status status = quire_map(pool, path, &options, &map);
    CHECK_OK(quire_pool_release(pool));
    no_pool(pool);
    if (status == QUIRE_UNSUPPORTED) {
        skip(quire_last_error());
        return;
    }
    CHECK_OK(status);
    CHECK_OK(quire_map_release(map));
    no_map(map);
    CHECK(unlink(path) == 0);
}

static void numbers_and_handles_of_another_kind(void) {
    static const uintptr_t numbers[] = {1, 7, 8, 16, 4096, 0x1001, (uintptr_t)1 << 40, (uintptr_t)-16, (uintptr_t)-1};
    long on_stack[8] = {0};
    void *on_heap = calloc(1, 4096);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        no_range((quire_range *)numbers[i]);
        no_snapshot((quire_snapshot *)numbers[i]);
        no_pool((quire_pool *)numbers[i]);
        no_map((quire_mapping *)numbers[i]);
    }
    no_range((quire_range *)(void *)on_stack);
    no_map((quire_mapping *)on_heap);
    free(on_heap);
    quire_range *range;
    quire_pool *pool;
    CHECK_OK(quire_range_create(MIB, QUIRE_MEMCPY, NULL, &range));
    CHECK_OK(quire_pool_create(MIB, NULL, &pool));
    no_range((quire_range *)(void *)pool);
    no_pool((quire_pool *)(void *)range);
    no_snapshot((quire_snapshot *)(void *)range);
    CHECK_OK(quire_pool_release(pool));
    CHECK_OK(quire_range_release(range));
}

static void many_objects_at_a_time(void) {
    enum { MANY = 300 };
    static quire_range *ranges[MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            CHECK_OK(quire_range_create(4096, QUIRE_MEMCPY, NULL, &ranges[i]));
        for (int i = 0; i < MANY; i++)
            CHECK(quire_range_size(ranges[i]) == 4096);
        for (int i = 0; i < MANY; i++)
            CHECK_OK(quire_range_release(ranges[(i * 7) % MANY]));
        no_range(ranges[round]);
    }
}

int main(void) {
    strcpy(folder, "/var/tmp/quire-released-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    RUN_WITH_EACH(ranges_and_snapshots_that_were_released);
    RUN(pools_and_maps_that_were_released);
    RUN(numbers_and_handles_of_another_kind);
    RUN(many_objects_at_a_time);
    rmdir(folder);
    return finish();
}
