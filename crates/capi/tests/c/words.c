/* Everything that is told in words and numbers: versions, statuses, mechanisms, messages. */
#include "check.h"

#include <stdlib.h>

static void header_and_library_are_of_one_version(void) {
    char header[40];
    snprintf(header, sizeof header, "%d.%d.%d", QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, QUIRE_VERSION_PATCH);
    CHECK(strcmp(quire_version(), header) == 0);
}

static void statuses_have_names(void) {
    CHECK(strcmp(quire_status_name(QUIRE_OK), "QUIRE_OK") == 0);
    CHECK(strcmp(quire_status_name(QUIRE_BUG), "QUIRE_BUG") == 0);
    CHECK(strcmp(quire_status_name(QUIRE_DAMAGED), "QUIRE_DAMAGED") == 0);
    CHECK(strcmp(quire_status_name(10000), "unknown") == 0);
    CHECK(strcmp(quire_status_name(-1), "unknown") == 0);
}

/* Has to be the first test: nothing has failed yet. */
static void without_a_failure_the_message_is_empty(void) {
    CHECK(quire_last_error() != NULL && *quire_last_error() == '\0');
}

static void a_success_leaves_the_message_alone(void) {
    CHECK(quire_mechanism_name(99) == NULL);
    CHECK(strstr(quire_last_error(), "99") != NULL);
    CHECK(quire_mechanism_name(QUIRE_FORK) != NULL);
    CHECK(strstr(quire_last_error(), "99") != NULL);
}

static void names_and_numbers_of_mechanisms_agree(void) {
    for (int32_t mechanism = QUIRE_BEST; mechanism <= QUIRE_MEMCPY; mechanism++) {
        int32_t parsed = -1;
        CHECK(quire_mechanism_name(mechanism) != NULL);
        CHECK_OK(quire_mechanism_parse(quire_mechanism_name(mechanism), &parsed));
        CHECK(parsed == mechanism);
    }
    int32_t parsed = 77;
    CHECK_FAILS(QUIRE_INVALID, "scoot", quire_mechanism_parse("spoon", &parsed));
    CHECK_FAILS(QUIRE_INVALID, "called \"\"", quire_mechanism_parse("", &parsed));
    CHECK_FAILS(QUIRE_INVALID, "`name` is NULL", quire_mechanism_parse(NULL, &parsed));
    CHECK(parsed == 77);
    CHECK_FAILS(QUIRE_INVALID, "`mechanism` is NULL", quire_mechanism_parse("uffd", NULL));
    CHECK(quire_mechanism_name(-1) == NULL && quire_mechanism_name(7) == NULL);
}

static void what_works_here_is_told_with_reasons(void) {
    char why[400] = "x";
    CHECK_OK(quire_mechanism_supported(QUIRE_MEMCPY, why, sizeof why));
    CHECK(*why == '\0');
    CHECK_OK(quire_mechanism_supported(QUIRE_BARRIER, NULL, 0));
    CHECK_OK(quire_mechanism_supported(QUIRE_BARRIER, NULL, 100));
    CHECK_OK(quire_mechanism_supported(QUIRE_BEST, why, sizeof why));
    CHECK(strchr(why, ':') != NULL);
    printf("best: %s\n", why);
    for (int32_t mechanism = QUIRE_SCOOT; mechanism <= QUIRE_MEMCPY; mechanism++) {
        quire_status status = quire_mechanism_supported(mechanism, why, sizeof why);
        CHECK(status == QUIRE_OK || (status == QUIRE_UNSUPPORTED && strlen(why) > 20));
        CHECK(status == QUIRE_OK || strcmp(why, quire_last_error()) == 0);
    }
}

static void a_reason_never_outgrows_its_room(void) {
    char why[8] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
    CHECK_STATUS(QUIRE_INVALID, quire_mechanism_supported(-5, why, 0));
    CHECK(why[0] == 'a');
    CHECK_STATUS(QUIRE_INVALID, quire_mechanism_supported(-5, why, 1));
    CHECK(why[0] == '\0' && why[1] == 'b');
    CHECK_STATUS(QUIRE_INVALID, quire_mechanism_supported(-5, why, 5));
    CHECK(why[4] == '\0' && why[5] == 'f');
    CHECK(strncmp(why, quire_last_error(), 4) == 0);
    CHECK_STATUS(QUIRE_INVALID, quire_mechanism_supported(-5, NULL, (size_t)-1));
}

int main(void) {
    RUN(without_a_failure_the_message_is_empty);
    RUN(header_and_library_are_of_one_version);
    RUN(statuses_have_names);
    RUN(a_success_leaves_the_message_alone);
    RUN(names_and_numbers_of_mechanisms_agree);
    RUN(what_works_here_is_told_with_reasons);
    RUN(a_reason_never_outgrows_its_room);
    return finish();
}
