/* Hints to a mount of quire. Those that a mount takes are tested in tests/critical.rs. */
#include "check.h"

static void what_is_no_mount_is_told(void) {
    CHECK_FAILS(QUIRE_INVALID, "`mount_point` is NULL", quire_critical(NULL, 0, 1));
    CHECK_FAILS(QUIRE_INVALID, "no root of a mount", quire_critical("/", 0, 1));
    CHECK_FAILS(QUIRE_INVALID, "no root of a mount", quire_critical("/no/such/place", 0, 0));
    CHECK_FAILS(QUIRE_INVALID, "no such process", quire_critical("/", -1, 1));
}

int main(void) {
    RUN(what_is_no_mount_is_told);
    return finish();
}
