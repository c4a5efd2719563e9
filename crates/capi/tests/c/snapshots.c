/* What a snapshot is, the same with every mechanism. */
#include "check.h"

#include <stdlib.h>

static void a_snapshot_shows_the_moment_of_its_cut(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *first, *second;
    CHECK_OK(quire_range_create(8 * MIB, mechanism, NULL, &range));
    CHECK(quire_range_size(range) == 8 * MIB && quire_range_base(range) != NULL);
    CHECK(quire_range_mechanism(range) == mechanism);
    CHECK(strcmp(quire_range_why(range), "it was asked for") == 0);
    put(range, 5000, 1);
    put(range, 7 * MIB, 10);
    CHECK_OK(quire_cut(range, &first));
    put(range, 5000, 2);
    CHECK_OK(quire_cut(range, &second));
    put(range, 5000, 3);
    put(range, 7 * MIB, 30);
    CHECK(byte_of(first, 5000) == 1 && byte_of(second, 5000) == 2);
    CHECK(byte_of(first, 7 * MIB) == 10 && byte_of(second, 7 * MIB) == 10);
    CHECK(byte_of(first, 0) == 0 && byte_of(first, 8 * MIB - 1) == 0);
    unsigned char *base = quire_range_base(range);
    CHECK(base[5000] == 3 && base[7 * MIB] == 30);
    CHECK(quire_snapshot_size(first) == 8 * MIB);
    CHECK(quire_snapshot_held_bytes(first) <= 16 * MIB);
    CHECK_OK(quire_snapshot_release(first));
    CHECK(byte_of(second, 5000) == 2);
    CHECK_OK(quire_snapshot_release(second));
    CHECK_OK(quire_range_settle(range));
    CHECK(base[5000] == 3 && base[7 * MIB] == 30);
    CHECK_OK(quire_range_release(range));
}

static void a_whole_range_is_read_at_once(int32_t mechanism) {
    const size_t size = 4 * MIB + 3 * 4096;
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_create(size, mechanism, NULL, &range));
    CHECK_OK(quire_prepare_write(range, 0, size));
    uint32_t *words = quire_range_base(range), *copy = malloc(size);
    const size_t count = size / sizeof *words;
    for (size_t i = 0; i < count; i++)
        words[i] = (uint32_t)(i * 2654435761u);
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_OK(quire_prepare_write(range, 0, size));
    for (size_t i = 0; i < count; i += 700)
        words[i]++;
    CHECK_OK(quire_read(snapshot, 0, copy, size));
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += copy[i] != (uint32_t)(i * 2654435761u);
    free(copy);
    CHECK(wrong == 0);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
}

static void data_is_the_snapshot_s_own_memory(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot, *copy;
    CHECK_OK(quire_range_create(4 * MIB, mechanism, NULL, &range));
    put(range, 100, 1);
    CHECK_OK(quire_cut(range, &snapshot));
    unsigned char *data = quire_snapshot_data(snapshot);
    bool has_data = mechanism == QUIRE_SCOOT || mechanism == QUIRE_MMAPCOPY || mechanism == QUIRE_MEMCPY;
    CHECK((data != NULL) == has_data);
    put(range, 100, 2);
    if (data != NULL) {
        CHECK(data[100] == 1);
        data[100] = 50;
        data[200] = 60;
        CHECK(byte_of(snapshot, 100) == 50);
        CHECK_OK(quire_snapshot_cut(snapshot, &copy));
        data[100] = 51;
        CHECK(byte_of(copy, 100) == 50 && byte_of(snapshot, 100) == 51);
        CHECK_OK(quire_snapshot_release(copy));
    }
    CHECK(((unsigned char *)quire_range_base(range))[100] == 2);
    CHECK(((unsigned char *)quire_range_base(range))[200] == 0);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
}

static void a_snapshot_of_a_snapshot_outlives_it(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *first, *second, *third;
    CHECK_OK(quire_range_create(4 * MIB, mechanism, NULL, &range));
    put(range, 9000, 1);
    CHECK_OK(quire_cut(range, &first));
    put(range, 9000, 2);
    CHECK_OK(quire_snapshot_cut(first, &second));
    CHECK_OK(quire_snapshot_cut(second, &third));
    CHECK_OK(quire_snapshot_release(first));
    put(range, 9000, 3);
    CHECK(byte_of(second, 9000) == 1 && byte_of(third, 9000) == 1);
    CHECK_OK(quire_snapshot_release(third));
    CHECK(byte_of(second, 9000) == 1);
    CHECK_OK(quire_snapshot_release(second));
    CHECK_OK(quire_range_release(range));
}

/* All orders in which a range and two snapshots can be released. */
static void the_order_of_release_does_not_matter(int32_t mechanism) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        quire_range *range;
        quire_snapshot *snapshots[2];
        CHECK_OK(quire_range_create(2 * MIB, mechanism, NULL, &range));
        for (int s = 0; s < 2; s++) {
            put(range, 4096, (unsigned char)(s + 1));
            CHECK_OK(quire_cut(range, &snapshots[s]));
        }
        put(range, 4096, 9);
        for (int step = 0; step < 3; step++) {
            for (int s = 0; s < 2; s++)
                CHECK(snapshots[s] == NULL || byte_of(snapshots[s], 4096) == s + 1);
            int which = orders[i][step];
            if (which == 2) {
                CHECK_OK(quire_range_release(range));
            } else {
                CHECK_OK(quire_snapshot_release(snapshots[which]));
                snapshots[which] = NULL;
            }
        }
    }
}

static void many_cuts_and_releases_leave_nothing_behind(int32_t mechanism) {
    quire_range *range;
    quire_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(quire_range_create(4 * MIB, mechanism, NULL, &range));
    for (int round = 1; round <= 40; round++) {
        quire_snapshot *snapshot;
        put(range, (size_t)round * 4096, 7);
        CHECK_OK(quire_cut(range, &snapshot));
        for (size_t page = 0; page < 64; page++)
            put(range, (page * 13 % 1024) * 4096 + 1, (unsigned char)round);
        CHECK(byte_of(snapshot, (size_t)round * 4096) == 7);
        CHECK(byte_of(snapshot, 1) == round - 1);
        CHECK_OK(quire_snapshot_release(snapshot));
    }
    CHECK_OK(quire_range_settle(range));
    CHECK_OK(quire_range_stats(range, &stats));
    CHECK(stats.cuts == 40 && stats.last_cut_ns > 0);
    CHECK(stats.precopied_pages <= stats.copied_pages);
    CHECK_OK(quire_range_release(range));
}

static void memory_for_snapshots_has_a_bound(int32_t mechanism) {
    if (mechanism != QUIRE_BARRIER && mechanism != QUIRE_UFFD)
        return;
    quire_options options = {.struct_size = sizeof options, .budget_bytes = 2 * MIB, .flags = QUIRE_NO_BACKGROUND};
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_create(16 * MIB, mechanism, &options, &range));
    CHECK_OK(quire_cut(range, &snapshot));
    for (size_t page = 0; page < 4096; page++)
        put(range, page * 4096, 1);
    int lost = 0;
    for (size_t page = 0; page < 4096; page++) {
        char byte;
        quire_status status = quire_read(snapshot, page * 4096, &byte, 1);
        CHECK(status == QUIRE_LOST || (status == QUIRE_OK && byte == 0));
        lost += status == QUIRE_LOST;
    }
    CHECK(lost > 0 && strstr(quire_last_error(), "budget") != NULL);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_cut(range, &snapshot));
    put(range, 0, 2);
    CHECK(byte_of(snapshot, 0) == 1);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
}

/* Some mechanisms have a bound on snapshots alive: it is told, and one released makes room for one. */
static void too_many_snapshots_are_told(int32_t mechanism) {
    enum { MOST = 300 };
    static quire_snapshot *snapshots[MOST];
    quire_range *range;
    quire_options options = {.struct_size = sizeof options, .flags = QUIRE_NO_BACKGROUND};
    CHECK_OK(quire_range_create(MIB, mechanism, &options, &range));
    int most = mechanism == QUIRE_FORK ? 5 : MOST, count = 0;
    quire_status status = QUIRE_OK;
    while (count < most && (status = quire_cut(range, &snapshots[count])) == QUIRE_OK)
        count++;
    CHECK(count >= 5 && (status == QUIRE_OK || status == QUIRE_EXHAUSTED));
    if (status == QUIRE_EXHAUSTED) {
        CHECK(snapshots[count] == NULL);
        CHECK_OK(quire_snapshot_release(snapshots[0]));
        CHECK_OK(quire_cut(range, &snapshots[0]));
    }
    for (int i = 0; i < count; i++)
        CHECK_OK(quire_snapshot_release(snapshots[i]));
    CHECK_OK(quire_range_release(range));
}

static void the_best_mechanism_says_why_it_is(void) {
    quire_range *range;
    quire_options options = {.struct_size = sizeof options, .flags = QUIRE_ANNOUNCES};
    CHECK_OK(quire_range_create(4096, QUIRE_BEST, NULL, &range));
    CHECK(quire_range_mechanism(range) == QUIRE_MEMCPY && strstr(quire_range_why(range), "small") != NULL);
    CHECK_OK(quire_range_release(range));
    CHECK_OK(quire_range_create(8 * MIB, QUIRE_BEST, &options, &range));
    CHECK(quire_range_mechanism(range) == QUIRE_BARRIER && strlen(quire_range_why(range)) > 10);
    CHECK_OK(quire_range_release(range));
    options.flags = QUIRE_ANNOUNCES | QUIRE_ADDRESSABLE;
    CHECK_OK(quire_range_create(8 * MIB, QUIRE_BEST, &options, &range));
    quire_snapshot *snapshot;
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK(quire_snapshot_data(snapshot) != NULL);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
    CHECK_OK(quire_range_create(8 * MIB, QUIRE_BEST, NULL, &range));
    CHECK(quire_range_mechanism(range) != QUIRE_BEST && quire_range_mechanism(range) != QUIRE_BARRIER);
    CHECK_OK(quire_range_release(range));
}

int main(void) {
    RUN_WITH_EACH(a_snapshot_shows_the_moment_of_its_cut);
    RUN_WITH_EACH(a_whole_range_is_read_at_once);
    RUN_WITH_EACH(data_is_the_snapshot_s_own_memory);
    RUN_WITH_EACH(a_snapshot_of_a_snapshot_outlives_it);
    RUN_WITH_EACH(the_order_of_release_does_not_matter);
    RUN_WITH_EACH(many_cuts_and_releases_leave_nothing_behind);
    RUN_WITH_EACH(memory_for_snapshots_has_a_bound);
    RUN_WITH_EACH(too_many_snapshots_are_told);
    RUN(the_best_mechanism_says_why_it_is);
    return finish();
}
