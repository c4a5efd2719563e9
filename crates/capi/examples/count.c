/* Counts the words of a file of any size, as if it were memory.
 *
 *     count FILE [POOL_MIB]          usual: 64
 *
 * The loop knows nothing of pages: it walks over bytes. Those that are not in memory are read as it gets there, and others
 * make room, so that the pool's memory is never exceeded.
 *
 *     cc -O2 count.c $(pkg-config --cflags --libs quire) -o count
 */
#include <quire.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char *what) {
    fprintf(stderr, "count: %s: %s\n", what, quire_last_error());
    exit(EXIT_FAILURE);
}

int main(int count, char **words) {
    if (count < 2) {
        fputs("usage: count FILE [POOL_MIB]\n", stderr);
        return EXIT_FAILURE;
    }
    size_t pool_mib = count > 2 ? strtoull(words[2], NULL, 10) : 64;

    /* Larger pages, as they are walked through in order. */
    quire_pool_options options = {.struct_size = sizeof options, .page_bytes = 65536};
    quire_pool *pool;
    quire_mapping *map;
    if (quire_pool_create(pool_mib << 20, &options, &pool) != QUIRE_OK)
        die("pool");
    if (quire_map(pool, words[1], NULL, &map) != QUIRE_OK)
        die("map");

    const unsigned char *bytes = quire_map_ptr(map);
    uint64_t len = quire_map_len(map), found = 0, is_inside = 0;
    for (uint64_t i = 0; i < len; i++) {
        uint64_t is_letter = isspace(bytes[i]) == 0;
        found += is_letter & ~is_inside;
        is_inside = is_letter;
    }

    quire_pool_counts counts = {.struct_size = sizeof counts};
    if (quire_pool_stats(pool, &counts) != QUIRE_OK)
        die("stats");
    printf("%llu words in %llu bytes; %llu pages brought in, %llu gave way, %llu MiB of %llu MiB in memory\n",
           (unsigned long long)found, (unsigned long long)len, (unsigned long long)counts.misses,
           (unsigned long long)counts.evicted_pages, (unsigned long long)(counts.resident_bytes >> 20),
           (unsigned long long)(counts.capacity_bytes >> 20));
    quire_map_release(map);
    quire_pool_release(pool);
    return EXIT_SUCCESS;
}
