/* Arguments without a meaning: each is told, and nothing happens. */
#include "check.h"

#include <stdlib.h>

static void null_ranges_are_told(void) {
    quire_snapshot *snapshot = (quire_snapshot *)&snapshot;
    quire_stats stats = {.struct_size = sizeof stats};
    CHECK(quire_range_base(NULL) == NULL);
    CHECK(strcmp(quire_last_error(), "`range` is NULL") == 0);
    CHECK(quire_range_size(NULL) == 0);
    CHECK(quire_range_mechanism(NULL) == QUIRE_BEST);
    CHECK(quire_range_why(NULL) == NULL);
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_prepare_write(NULL, 0, 0));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_cut(NULL, &snapshot));
    CHECK(snapshot == NULL);
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_settle(NULL));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_stats(NULL, &stats));
    CHECK_OK(quire_range_release(NULL));
}

static void null_snapshots_are_told(void) {
    char byte;
    quire_snapshot *copy = (quire_snapshot *)&copy;
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_read(NULL, 0, &byte, 1));
    CHECK(quire_snapshot_data(NULL) == NULL);
    CHECK(strcmp(quire_last_error(), "`snapshot` is NULL") == 0);
    CHECK(quire_snapshot_size(NULL) == 0);
    CHECK(quire_snapshot_held_bytes(NULL) == 0);
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_snapshot_cut(NULL, &copy));
    CHECK(copy == NULL);
    CHECK_OK(quire_snapshot_release(NULL));
}

static void places_for_results_may_not_be_null(void) {
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_create(4096, QUIRE_MEMCPY, NULL, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`range`", quire_range_adopt(NULL, 4096, QUIRE_MEMCPY, NULL, NULL));
    CHECK_OK(quire_range_create(4096, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_cut(range, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`stats`", quire_range_stats(range, NULL));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_FAILS(QUIRE_INVALID, "`copy`", quire_snapshot_cut(snapshot, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`buffer`", quire_read(snapshot, 0, NULL, 1));
    CHECK_OK(quire_read(snapshot, 0, NULL, 0));
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
}

static void sizes_that_no_memory_has_are_told(void) {
    static const size_t sizes[] = {0, (size_t)-1, (size_t)-4096, (size_t)1 << 63, ((size_t)1 << 62) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        quire_range *range = (quire_range *)&range;
        CHECK_FAILS(QUIRE_INVALID, "size", quire_range_create(sizes[i], QUIRE_BEST, NULL, &range));
        CHECK(range == NULL);
    }
    quire_range *range;
    CHECK_STATUS(QUIRE_NO_MEMORY, quire_range_create((size_t)1 << 60, QUIRE_MEMCPY, NULL, &range));
    CHECK(range == NULL && strlen(quire_last_error()) > 10);
}

static void an_odd_size_is_rounded_up_to_pages(void) {
    quire_range *range;
    CHECK_OK(quire_range_create(5000, QUIRE_MEMCPY, NULL, &range));
    CHECK(quire_range_size(range) == 8192);
    CHECK_OK(quire_range_release(range));
}

static void unknown_mechanisms_are_told(void) {
    quire_range *range;
    CHECK_FAILS(QUIRE_INVALID, "quire_mechanism", quire_range_create(4096, -1, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "quire_mechanism", quire_range_create(4096, 7, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "quire_mechanism", quire_mechanism_supported(7, NULL, 0));
    CHECK(range == NULL);
}

static void offsets_outside_are_told_by_every_mechanism(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot;
    static char buffer[8192];
    CHECK_OK(quire_range_create(2 * 4096, mechanism, NULL, &range));
    CHECK_OK(quire_prepare_write(range, 0, 8192));
    CHECK_OK(quire_prepare_write(range, 8192, 0));
    CHECK_FAILS(QUIRE_INVALID, "8192", quire_prepare_write(range, 0, 8193));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_prepare_write(range, 8193, 0));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_prepare_write(range, 4096, (size_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_prepare_write(range, (size_t)-1, 4096));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_OK(quire_read(snapshot, 0, buffer, 8192));
    CHECK_OK(quire_read(snapshot, 8191, buffer, 1));
    CHECK_OK(quire_read(snapshot, 8192, buffer, 0));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_read(snapshot, 8191, buffer, 2));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_read(snapshot, 8193, buffer, 0));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_read(snapshot, 1, buffer, (size_t)-1));
    CHECK_FAILS(QUIRE_INVALID, "outside", quire_read(snapshot, (size_t)-1, buffer, 1));
    CHECK_OK(quire_range_release(range));
    CHECK_OK(quire_snapshot_release(snapshot));
}

static void buffers_within_the_range_or_the_snapshot_are_told(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_create(MIB, mechanism, NULL, &range));
    CHECK_OK(quire_cut(range, &snapshot));
    char *base = quire_range_base(range), *data = quire_snapshot_data(snapshot);
    CHECK_FAILS(QUIRE_INVALID, "within the range", quire_read(snapshot, 0, base, MIB));
    CHECK_FAILS(QUIRE_INVALID, "within the range", quire_read(snapshot, 0, base + MIB - 1, 1));
    CHECK_FAILS(QUIRE_INVALID, "within the range", quire_read(snapshot, 0, base - 1, 2));
    if (data != NULL) {
        CHECK_FAILS(QUIRE_INVALID, "within the snapshot", quire_read(snapshot, 4096, data, 1));
        CHECK_FAILS(QUIRE_INVALID, "within the snapshot", quire_read(snapshot, 0, data + MIB - 1, 1));
    }
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
}

/* How making a range with these options ends. */
static quire_status create_with(quire_options options) {
    quire_range *range = NULL;
    quire_status status = quire_range_create(MIB, QUIRE_BARRIER, &options, &range);
    return quire_range_release(range) == QUIRE_OK ? status : QUIRE_BUG;
}

#define WITH(...) create_with((quire_options){.struct_size = sizeof(quire_options), __VA_ARGS__})

static void options_without_a_meaning_are_told(void) {
    CHECK_OK(WITH(.flags = 0));
    CHECK_OK(WITH(.region_bytes = 32768));
    CHECK_OK(WITH(.precopy = QUIRE_PRECOPY_THRESHOLD, .threshold_percent = 80));
    CHECK_OK(WITH(.precopy = QUIRE_PRECOPY_NONE, .flags = QUIRE_NO_BACKGROUND));
    CHECK_OK(WITH(.precopy = QUIRE_PRECOPY_ALL, .budget_bytes = MIB, .keep_bytes = 1));
    CHECK_FAILS(QUIRE_INVALID, "power of two", WITH(.region_bytes = 5000));
    CHECK_FAILS(QUIRE_INVALID, "power of two", WITH(.region_bytes = 4 * MIB));
    CHECK_FAILS(QUIRE_INVALID, "precopy", WITH(.precopy = 4));
    CHECK_FAILS(QUIRE_INVALID, "1 to 100", WITH(.precopy = QUIRE_PRECOPY_THRESHOLD));
    CHECK_FAILS(QUIRE_INVALID, "101", WITH(.precopy = QUIRE_PRECOPY_THRESHOLD, .threshold_percent = 101));
    CHECK_FAILS(QUIRE_INVALID, "flags", WITH(.flags = 1u << 30));
    CHECK_FAILS(QUIRE_INVALID, "sizeof", create_with((quire_options){.struct_size = 0}));
    CHECK_FAILS(QUIRE_INVALID, "sizeof", create_with((quire_options){.struct_size = (size_t)-1}));
}

/* A program that was compiled with the header of an earlier or a later version. */
static void structures_of_other_versions_are_understood(void) {
    struct {
        quire_options options;
        uint64_t later;
    } newer = {.options = {.struct_size = sizeof newer}};
    quire_range *range;
    CHECK_OK(quire_range_create(MIB, QUIRE_MEMCPY, &newer.options, &range));
    quire_range_release(range);
    newer.later = 1;
    CHECK_FAILS(QUIRE_INVALID, "later libquire", quire_range_create(MIB, QUIRE_MEMCPY, &newer.options, &range));
    size_t older = sizeof older;
    CHECK_OK(quire_range_create(MIB, QUIRE_MEMCPY, (const quire_options *)(void *)&older, &range));

    struct {
        quire_stats stats;
        uint64_t later;
    } figures = {.stats = {.struct_size = sizeof figures}, .later = 9};
    CHECK_OK(quire_range_stats(range, &figures.stats));
    CHECK(figures.later == 0 && figures.stats.struct_size == sizeof figures);
    struct {
        size_t struct_size;
        uint64_t cuts, guard;
    } small = {16, 5, 6};
    CHECK_OK(quire_range_stats(range, (quire_stats *)(void *)&small));
    CHECK(small.struct_size == 16 && small.cuts == 0 && small.guard == 6);
    quire_stats stats = {0};
    CHECK_FAILS(QUIRE_INVALID, "sizeof", quire_range_stats(range, &stats));
    CHECK_OK(quire_range_release(range));
}

int main(void) {
    RUN(null_ranges_are_told);
    RUN(null_snapshots_are_told);
    RUN(places_for_results_may_not_be_null);
    RUN(sizes_that_no_memory_has_are_told);
    RUN(an_odd_size_is_rounded_up_to_pages);
    RUN(unknown_mechanisms_are_told);
    RUN(options_without_a_meaning_are_told);
    RUN(structures_of_other_versions_are_understood);
    RUN_WITH_EACH(offsets_outside_are_told_by_every_mechanism);
    RUN_WITH_EACH(buffers_within_the_range_or_the_snapshot_are_told);
    return finish();
}
