/* A snapshot that is taken in the order of addresses, with every mechanism, while its range is written. */
#include "check.h"

#include <stdlib.h>

static unsigned char value_at(size_t offset) { return (unsigned char)(offset / 4096 % 250 + 1); }

static void what_is_taken_is_the_moment_of_the_cut(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot, *before;
    size_t at = 0, start, count, seen = 0, holes = 0;
    unsigned char *buffer = malloc(MIB);
    CHECK_OK(quire_range_create(8 * MIB, mechanism, NULL, &range));
    /* The third MiB and the fifth are never written before the cut. */
    for (size_t offset = 0; offset < 8 * MIB; offset += 4096)
        if (offset / MIB != 2 && offset / MIB != 4)
            put(range, offset, value_at(offset));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_OK(quire_snapshot_cut(snapshot, &before));
    for (;;) {
        CHECK_OK(quire_snapshot_take(snapshot, at, buffer, MIB, &start, &count));
        CHECK(at <= start && count <= MIB / 4);
        holes += start - at;
        if (count == 0)
            break;
        for (size_t offset = start; offset < start + count; offset += 4096) {
            int is_hole = offset / MIB == 2 || offset / MIB == 4;
            CHECK(buffer[offset - start] == (is_hole ? 0 : value_at(offset)));
        }
        at = start + count;
        seen += count;
        put(range, at - 1, 7);
        put(range, 0, 7);
        if (mechanism == QUIRE_FORK && seen > count) {
            CHECK_FAILS(QUIRE_LOST, "were taken", quire_read(snapshot, 0, buffer, 1));
            CHECK_FAILS(QUIRE_LOST, "were taken", quire_snapshot_take(snapshot, 0, buffer, 1, &start, &count));
        }
    }
    CHECK(start == 8 * MIB && seen + holes == 8 * MIB);
    CHECK(byte_of(before, 4096) == value_at(4096));
    if (mechanism == QUIRE_FORK) {
        CHECK(byte_of(snapshot, 8 * MIB - 1) == -1 && quire_snapshot_held_bytes(snapshot) == 0);
        CHECK(strstr(quire_last_error(), "were taken") != NULL);
    }
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_snapshot_release(before));
    CHECK_OK(quire_range_release(range));
    free(buffer);
}

static void arguments_without_a_meaning_are_told(void) {
    quire_range *range;
    quire_snapshot *snapshot;
    size_t start, count;
    char buffer[16];
    CHECK_FAILS(QUIRE_INVALID, "`snapshot`", quire_snapshot_take(NULL, 0, buffer, sizeof buffer, &start, &count));
    CHECK_OK(quire_range_create(4096, QUIRE_MEMCPY, NULL, &range));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_FAILS(QUIRE_INVALID, "`buffer`", quire_snapshot_take(snapshot, 0, NULL, 1, &start, &count));
    CHECK_FAILS(QUIRE_INVALID, "`start`", quire_snapshot_take(snapshot, 0, buffer, 1, NULL, &count));
    CHECK_FAILS(QUIRE_INVALID, "`count`", quire_snapshot_take(snapshot, 0, buffer, 1, &start, NULL));
    CHECK_FAILS(QUIRE_INVALID, "`len`", quire_snapshot_take(snapshot, 0, buffer, 0, &start, &count));
    CHECK_STATUS(QUIRE_INVALID, quire_snapshot_take(snapshot, 4097, buffer, 1, &start, &count));
    CHECK_FAILS(QUIRE_INVALID, "range", quire_snapshot_take(snapshot, 0, quire_range_base(range), 16, &start, &count));
    CHECK_OK(quire_snapshot_take(snapshot, 4096, buffer, 1, &start, &count));
    CHECK(start == 4096 && count == 0);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_FAILS(QUIRE_INVALID, "released", quire_snapshot_take(snapshot, 0, buffer, 1, &start, &count));
    CHECK_OK(quire_range_release(range));
}

int main(void) {
    RUN_WITH_EACH(what_is_taken_is_the_moment_of_the_cut);
    RUN(arguments_without_a_meaning_are_told);
    return finish();
}
