/* A table that saves itself by forking, as programs do it: the child writes it, the parent goes on.
 *
 *     table_fwrite fill FILE ENTRIES      fills a table, saves it, and changes every entry while the child is at work
 *     table_fwrite check FILE ENTRIES     loads the file and looks at every entry
 *
 *     cc -O2 table_fwrite.c -o table_fwrite
 */
#define _GNU_SOURCE
#include "table.h"

#include <sys/wait.h>
#include <unistd.h>

enum { VALUE_BYTES = 400 };

/* Writes the table. Runs in the child. */
static int save(const struct table *table, const char *path) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *fp = fopen(temporary, "wb");
    if (fp == NULL)
        return -1;
    size_t written = fwrite(&table->entry_count, sizeof table->entry_count, 1, fp);
    for (size_t bucket = 0; bucket < table->bucket_count; bucket++) {
        for (const struct entry *entry = table->buckets[bucket]; entry != NULL; entry = entry->next) {
            written &= fwrite(&entry->key_len, sizeof entry->key_len, 1, fp);
            written &= fwrite(&entry->value_len, sizeof entry->value_len, 1, fp);
            written &= fwrite(entry->bytes, entry->key_len + entry->value_len, 1, fp);
        }
    }
    if (!written || fflush(fp) != 0 || fsync(fileno(fp)) != 0 || fclose(fp) != 0)
        return -1;
    return rename(temporary, path);
}

/* Reads what save() has written. */
static int load(struct table *table, const char *path) {
    FILE *fp = fopen(path, "rb");
    size_t count;
    if (fp == NULL || fread(&count, sizeof count, 1, fp) != 1)
        return -1;
    for (size_t i = 0; i < count; i++) {
        uint32_t lengths[2];
        if (fread(lengths, sizeof *lengths, 2, fp) != 2)
            return -1;
        struct entry *entry = entry_new(lengths[0], lengths[1]);
        if (fread(entry->bytes, lengths[0] + lengths[1], 1, fp) != 1)
            return -1;
        table_link(table, entry);
    }
    return fclose(fp);
}

#include "table_main.h"
