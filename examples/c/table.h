/* A hash table of strings, and how it is asked for on the command line.
 *
 * The two programs beside it save it by forking: table_fwrite.c as programs do it, table_mdc.c with libquire. `diff` shows what
 * that takes.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    uint32_t key_len, value_len;
    char bytes[]; /* the key, then the value */
};

struct table {
    struct entry **buckets;
    size_t bucket_count, entry_count;
};

static inline void die(const char *what) {
    fprintf(stderr, "table: %s\n", what);
    exit(EXIT_FAILURE);
}

static inline uint64_t hash(const char *key, size_t len) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)key[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

static inline void table_init(struct table *table, size_t buckets) {
    table->buckets = calloc(buckets, sizeof *table->buckets);
    if (table->buckets == NULL)
        die("no memory");
    table->bucket_count = buckets;
    table->entry_count = 0;
}

static inline struct entry *table_find(const struct table *table, const char *key, size_t len) {
    struct entry *entry = table->buckets[hash(key, len) % table->bucket_count];
    while (entry != NULL && (entry->key_len != len || memcmp(entry->bytes, key, len) != 0))
        entry = entry->next;
    return entry;
}

/* An entry that is in no table yet. */
static inline struct entry *entry_new(uint32_t key_len, uint32_t value_len) {
    struct entry *entry = malloc(sizeof *entry + key_len + value_len);
    if (entry == NULL)
        die("no memory");
    entry->key_len = key_len;
    entry->value_len = value_len;
    return entry;
}

static inline void table_link(struct table *table, struct entry *entry) {
    struct entry **bucket = &table->buckets[hash(entry->bytes, entry->key_len) % table->bucket_count];
    entry->next = *bucket;
    *bucket = entry;
    table->entry_count++;
}

/* Gives key a value of len letters; what it had before must have been as long. */
static inline void table_set(struct table *table, const char *key, char letter, uint32_t len) {
    struct entry *entry = table_find(table, key, strlen(key));
    if (entry == NULL) {
        entry = entry_new((uint32_t)strlen(key), len);
        memcpy(entry->bytes, key, entry->key_len);
        table_link(table, entry);
    }
    memset(entry->bytes + entry->key_len, letter, len);
}

#endif
