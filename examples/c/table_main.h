/* The rest of both programs: what they do with save() and load(). */
static const char *key_of(size_t number) {
    static char key[32];
    snprintf(key, sizeof key, "key:%zu", number);
    return key;
}

static char letter_of(size_t number, size_t turn) {
    return (char)('a' + (number + turn) % 26);
}

/* Saves in a child, which says by its status how that went; the parent changes every entry meanwhile. */
static int save_in_background(struct table *table, const char *path, size_t entries, size_t turn) {
    pid_t child = fork();
    if (child == 0)
        _exit(save(table, path) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    for (size_t i = 0; child > 0 && i < entries; i++)
        table_set(table, key_of(i), letter_of(i, turn + 1), VALUE_BYTES);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS ? 0 : -1;
}

/* Every entry has to be of the same turn: as it was at the fork. */
static void check(const char *path, size_t entries) {
    struct table table;
    table_init(&table, entries * 2 + 1);
    if (load(&table, path) != 0)
        die("the file can't be loaded");
    if (table.entry_count != entries)
        die("entries are missing");
    size_t turn = 26;
    for (size_t i = 0; i < entries; i++) {
        const struct entry *entry = table_find(&table, key_of(i), strlen(key_of(i)));
        if (entry == NULL || entry->value_len != VALUE_BYTES)
            die("an entry is missing");
        const char *value = entry->bytes + entry->key_len;
        for (size_t letter = 0; turn == 26 && letter < 26; letter++)
            turn = value[0] == letter_of(i, letter) ? letter : turn;
        for (size_t at = 0; at < VALUE_BYTES; at++)
            if (value[at] != letter_of(i, turn))
                die("an entry is not as it was at the fork");
    }
    printf("%zu entries, all of turn %zu\n", entries, turn);
}

int main(int argc, char **argv) {
    size_t entries = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (entries == 0)
        die("usage: fill|check FILE ENTRIES [TURNS]");
    if (strcmp(argv[1], "check") == 0)
        return check(argv[2], entries), EXIT_SUCCESS;
    size_t turns = argc > 4 ? strtoul(argv[4], NULL, 10) : 1;
    struct table table;
    table_init(&table, entries * 2 + 1);
    for (size_t i = 0; i < entries; i++)
        table_set(&table, key_of(i), letter_of(i, 0), VALUE_BYTES);
    for (size_t turn = 0; turn < turns; turn++) {
        if (save_in_background(&table, argv[2], entries, turn) != 0)
            die("it was not saved");
        printf("saved turn %zu\n", turn);
        fflush(stdout);
    }
    return EXIT_SUCCESS;
}
