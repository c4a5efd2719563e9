/* Threads: writers that go on beside snapshots, readers of one snapshot, calls from everywhere. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { WRITERS = 3, PAGES = 1024, ROUNDS = 12 };

/* Each writer has every third page, whose two words are always equal outside a write: first the one, then the other. */
struct shared {
    quire_range *range;
    pthread_rwlock_t gate; /* writers of the range hold it for reading, a cut for writing */
    atomic_bool stop;
    atomic_int failures;
};

struct writer {
    struct shared *shared;
    size_t number;
};

static void *write_on(void *argument) {
    struct writer *writer = argument;
    struct shared *shared = writer->shared;
    unsigned char *base = quire_range_base(shared->range);
    uint64_t state = writer->number + 1;
    while (!atomic_load(&shared->stop)) {
        pthread_rwlock_rdlock(&shared->gate);
        for (int i = 0; i < 50; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            size_t page = (state >> 33) % (PAGES / WRITERS) * WRITERS + writer->number;
            if (quire_prepare_write(shared->range, page * 4096, 4096) != QUIRE_OK)
                atomic_fetch_add(&shared->failures, 1);
            uint64_t *words = (uint64_t *)(void *)(base + page * 4096);
            words[0] = state;
            words[511] = state;
        }
        pthread_rwlock_unlock(&shared->gate);
    }
    return NULL;
}

/* Whether every page of the snapshot is whole; also a sum, by which two readings can be compared. */
static bool is_whole(const quire_snapshot *snapshot, uint64_t *sum) {
    uint64_t words[512];
    *sum = 0;
    for (size_t page = 0; page < PAGES; page++) {
        if (quire_read(snapshot, page * 4096, words, sizeof words) != QUIRE_OK || words[0] != words[511])
            return false;
        *sum = *sum * 31 + words[0];
    }
    return true;
}

static void snapshots_are_whole_while_threads_write(int32_t mechanism) {
    /* Of the kind that lets a cut in although the writers never pause for long. */
    struct shared shared = {.gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    CHECK_OK(quire_range_create(PAGES * 4096, mechanism, NULL, &shared.range));
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){&shared, i};
        CHECK(pthread_create(&threads[i], NULL, write_on, &writers[i]) == 0);
    }
    bool whole = true;
    quire_status status = QUIRE_OK;
    quire_snapshot *kept = NULL;
    uint64_t kept_sum = 0, sum;
    for (int round = 0; round < ROUNDS && whole && status == QUIRE_OK; round++) {
        quire_snapshot *snapshot;
        pthread_rwlock_wrlock(&shared.gate);
        status = quire_cut(shared.range, &snapshot);
        pthread_rwlock_unlock(&shared.gate);
        if (status != QUIRE_OK)
            break;
        whole = is_whole(snapshot, &sum) && (kept == NULL || (is_whole(kept, &sum) && sum == kept_sum));
        /* One snapshot in three lives on for some rounds. */
        if (round % 3 == 0) {
            quire_snapshot_release(kept);
            kept = snapshot;
            whole = whole && is_whole(kept, &kept_sum);
        } else {
            quire_snapshot_release(snapshot);
        }
    }
    atomic_store(&shared.stop, true);
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(status);
    CHECK(whole && atomic_load(&shared.failures) == 0);
    CHECK_OK(quire_snapshot_release(kept));
    CHECK_OK(quire_range_release(shared.range));
    pthread_rwlock_destroy(&shared.gate);
}

struct reader {
    const quire_snapshot *snapshot;
    uint64_t sum;
    bool whole;
};

static void *read_on(void *argument) {
    struct reader *reader = argument;
    reader->whole = true;
    for (int i = 0; i < 5 && reader->whole; i++)
        reader->whole = is_whole(reader->snapshot, &reader->sum);
    return NULL;
}

static void one_snapshot_has_many_readers(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_create(PAGES * 4096, mechanism, NULL, &range));
    uint64_t *words = quire_range_base(range);
    CHECK_OK(quire_prepare_write(range, 0, PAGES * 4096));
    for (size_t page = 0; page < PAGES; page++)
        words[page * 512] = words[page * 512 + 511] = page;
    CHECK_OK(quire_cut(range, &snapshot));
    struct reader readers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        readers[i].snapshot = snapshot;
        CHECK(pthread_create(&threads[i], NULL, read_on, &readers[i]) == 0);
    }
    for (size_t page = 0; page < PAGES; page++)
        put(range, page * 4096 + 8, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        CHECK(readers[i].whole && readers[i].sum == readers[0].sum);
    CHECK_OK(quire_range_release(range));
    CHECK_OK(quire_snapshot_release(snapshot));
}

static void *fail_here(void *argument) {
    bool *good = argument;
    *good = *quire_last_error() == '\0' && quire_mechanism_name(1234) == NULL &&
            strstr(quire_last_error(), "1234") != NULL;
    return NULL;
}

static void each_thread_has_its_own_message(void) {
    pthread_t thread;
    bool good = false;
    CHECK_FAILS(QUIRE_INVALID, "99", quire_mechanism_supported(99, NULL, 0));
    CHECK(pthread_create(&thread, NULL, fail_here, &good) == 0);
    pthread_join(thread, NULL);
    CHECK(good && strstr(quire_last_error(), "99") != NULL);
}

/* Ranges and snapshots that come and go, each known to one thread only. */
static void *come_and_go(void *argument) {
    int32_t mechanism = *(int32_t *)argument;
    for (int i = 0; i < 20; i++) {
        quire_range *range = NULL;
        quire_snapshot *snapshot = NULL;
        quire_status status = quire_range_create(MIB, mechanism, NULL, &range);
        if (status == QUIRE_OK) {
            put(range, 0, 1);
            status = quire_cut(range, &snapshot);
            put(range, 0, 2);
        }
        quire_range_release(range);
        int byte = status == QUIRE_OK ? byte_of(snapshot, 0) : -1;
        quire_snapshot_release(snapshot);
        if (byte != 1) {
            printf("round %d: %s, byte %d: %s\n", i, quire_status_name(status), byte, quire_last_error());
            return argument;
        }
    }
    return NULL;
}

static void ranges_come_and_go_in_many_threads(int32_t mechanism) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, come_and_go, &mechanism) == 0);
    bool good = true;
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        good = good && failed == NULL;
    }
    CHECK(good);
}

struct deaf {
    quire_range *range;
    int reached;
};

static void *write_deaf(void *argument) {
    struct deaf *deaf = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    volatile unsigned char *base = quire_range_base(deaf->range);
    for (size_t page = 0; page < PAGES; page += 7) {
        base[page * 4096] = 9;
        deaf->reached++;
    }
    return NULL;
}

static void a_thread_that_blocks_all_signals_may_write_where_faults_are_served(void) {
    if (quire_mechanism_supported(QUIRE_UFFD, NULL, 0) != QUIRE_OK) {
        skip(quire_last_error());
        return;
    }
    quire_options options = {.struct_size = sizeof options, .flags = QUIRE_SERVE_FAULTS};
    struct deaf deaf = {0};
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_create(PAGES * 4096, QUIRE_UFFD, &options, &deaf.range));
    put(deaf.range, 0, 1);
    CHECK_OK(quire_cut(deaf.range, &snapshot));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_deaf, &deaf) == 0);
    pthread_join(thread, NULL);
    unsigned char *base = quire_range_base(deaf.range);
    CHECK(deaf.reached == (PAGES + 6) / 7 && base[0] == 9 && byte_of(snapshot, 0) == 1 && byte_of(snapshot, 7 * 4096) == 0);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(deaf.range));
}

int main(void) {
    RUN(each_thread_has_its_own_message);
    RUN(a_thread_that_blocks_all_signals_may_write_where_faults_are_served);
    RUN_WITH_EACH(snapshots_are_whole_while_threads_write);
    RUN_WITH_EACH(one_snapshot_has_many_readers);
    RUN_WITH_EACH(ranges_come_and_go_in_many_threads);
    return finish();
}
