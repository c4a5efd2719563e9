/* Snapshots of a table that another thread goes on updating.
 *
 *     table [MIB [MECHANISM [CUTS]]]          usual: 1024 best 5
 *
 * The table holds accounts. A thread moves money between accounts picked at random, so that at any moment between two
 * moves the sum over all accounts is the same: an invariant that a reader who walks the live table would find violated,
 * as accounts change behind and before him. The main thread cuts snapshots and adds them up while moves go on. Each sum
 * has to be right. What is shown is for how long the mover stood still, and how fast it was meanwhile.
 *
 *     cc -O2 -pthread table.c $(pkg-config --cflags --libs quire) -o table
 */
#define _GNU_SOURCE
#include <quire.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct account {
    int64_t balance;
    uint64_t moves;
    char owner[48];
};

enum { FIRST_BALANCE = 1000 };

/* Where the mover stops when a cut is due. It looks at `closed` between two moves, when the table makes sense; so a cut
 * waits for one move at most. With several writers `stopped` would count them. */
struct gate {
    atomic_bool closed;
    bool stopped;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct table {
    quire_range *range;
    struct account *accounts; /* the range's memory: used like any other */
    size_t count;
    struct gate gate;
    atomic_bool done;
    atomic_uint_fast64_t moves;
};

static void die(const char *what) {
    fprintf(stderr, "table: %s: %s\n", what, quire_last_error());
    exit(EXIT_FAILURE);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void wait_at(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->stopped = true;
    pthread_cond_broadcast(&gate->changed);
    while (atomic_load(&gate->closed))
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->stopped = false;
    pthread_mutex_unlock(&gate->lock);
}

static void close_gate(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->closed, true);
    while (!gate->stopped)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void open_gate(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->closed, false);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* Tells the library what is going to be written. The barrier depends on it, and for the other mechanisms it costs next to
 * nothing; a program that will never use the barrier can leave it out. */
static struct account *to_write(struct table *table, size_t index) {
    if (quire_prepare_write(table->range, index * sizeof(struct account), sizeof(struct account)) != QUIRE_OK)
        die("prepare_write");
    return &table->accounts[index];
}

static void *move_money(void *argument) {
    struct table *table = argument;
    uint64_t random = 88172645463325252u;
    while (!atomic_load_explicit(&table->done, memory_order_relaxed)) {
        if (atomic_load_explicit(&table->gate.closed, memory_order_relaxed))
            wait_at(&table->gate);
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        struct account *from = to_write(table, (random >> 8) % table->count);
        struct account *to = to_write(table, (random >> 32) % table->count);
        int64_t amount = (int64_t)(random & 255);
        from->balance -= amount;
        to->balance += amount;
        from->moves++;
        to->moves++;
        atomic_fetch_add_explicit(&table->moves, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Adds up a snapshot. Where it is ordinary memory it is read in place; else a piece at a time is copied out. */
static int64_t sum_of(const quire_snapshot *snapshot, size_t count) {
    enum { PIECE = 16384 };
    static struct account piece[PIECE];
    const struct account *all = quire_snapshot_data(snapshot);
    int64_t sum = 0;
    for (size_t first = 0; first < count; first += PIECE) {
        size_t in_piece = count - first < PIECE ? count - first : PIECE;
        const struct account *accounts = piece;
        if (all != NULL)
            accounts = all + first;
        else if (quire_read(snapshot, first * sizeof *piece, piece, in_piece * sizeof *piece) != QUIRE_OK)
            die("read");
        for (size_t i = 0; i < in_piece; i++)
            sum += accounts[i].balance;
    }
    return sum;
}

static void make_table(struct table *table, size_t mib, int32_t mechanism) {
    /* Zero is the usual in all options, so only what differs is set. These matter to QUIRE_BEST alone: every write will
     * be announced. */
    quire_options options = {.struct_size = sizeof options, .flags = QUIRE_ANNOUNCES};
    if (quire_range_create(mib << 20, mechanism, &options, &table->range) != QUIRE_OK)
        die("create");
    table->accounts = quire_range_base(table->range);
    table->count = quire_range_size(table->range) / sizeof(struct account);
    for (size_t i = 0; i < table->count; i++) {
        struct account *account = to_write(table, i);
        account->balance = FIRST_BALANCE;
        snprintf(account->owner, sizeof account->owner, "owner %zu", i);
    }
}

/* Cuts, adds up, tells how it went; whether the sum was right. */
static bool cut_and_check(struct table *table, int cut) {
    quire_snapshot *snapshot;
    double start = now();
    close_gate(&table->gate);
    if (quire_cut(table->range, &snapshot) != QUIRE_OK)
        die("cut");
    open_gate(&table->gate);
    double stalled = now() - start;

    uint64_t moves = atomic_load(&table->moves);
    start = now();
    int64_t sum = sum_of(snapshot, table->count);
    double took = now() - start;
    moves = atomic_load(&table->moves) - moves;

    int64_t expected = (int64_t)table->count * FIRST_BALANCE;
    quire_stats stats = {.struct_size = sizeof stats};
    if (quire_range_stats(table->range, &stats) != QUIRE_OK)
        die("stats");
    printf("cut %d: mover stood still for %.3f ms (the cut itself %.3f ms); read %.0f MiB/s beside %.0f moves/s; "
           "held %.1f MiB; %s\n",
           cut, stalled * 1e3, (double)stats.last_cut_ns / 1e6,
           (double)quire_range_size(table->range) / took / (1 << 20), (double)moves / took,
           (double)stats.held_bytes_now / (1 << 20), sum == expected ? "the sum is right" : "THE SUM IS WRONG");
    if (quire_snapshot_release(snapshot) != QUIRE_OK)
        die("release");
    return sum == expected;
}

int main(int count, char **words) {
    size_t mib = count > 1 ? strtoull(words[1], NULL, 10) : 1024;
    int32_t mechanism = QUIRE_BEST;
    if (count > 2 && quire_mechanism_parse(words[2], &mechanism) != QUIRE_OK)
        die("mechanism");
    int cuts = count > 3 ? atoi(words[3]) : 5;

    static struct table table = {.gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};
    make_table(&table, mib, mechanism);
    printf("%zu accounts in %zu MiB; %s: %s\n", table.count, mib,
           quire_mechanism_name(quire_range_mechanism(table.range)), quire_range_why(table.range));

    pthread_t mover;
    if (pthread_create(&mover, NULL, move_money, &table) != 0) {
        fputs("table: no thread to be had\n", stderr);
        return EXIT_FAILURE;
    }
    bool right = true;
    for (int cut = 1; cut <= cuts; cut++) {
        double start = now();
        uint64_t moves = atomic_load(&table.moves);
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        printf("without a snapshot: %.0f moves/s\n", (double)(atomic_load(&table.moves) - moves) / (now() - start));
        right = cut_and_check(&table, cut) && right;
    }
    atomic_store(&table.done, true);
    pthread_join(mover, NULL);
    quire_range_release(table.range);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
