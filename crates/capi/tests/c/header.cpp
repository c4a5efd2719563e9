// The header as C++ reads it: types, constants and calls; compiled only.
#include <quire.h>

#include <cstdio>

int use_everything_that_differs() {
    quire_options options{};
    options.struct_size = sizeof options;
    options.precopy = QUIRE_PRECOPY_NONE;
    quire_range *range = nullptr;
    quire_mechanism wanted = QUIRE_UFFD;
    quire_status status = quire_range_create(4096, wanted, &options, &range);
    if (status != QUIRE_OK || quire_range_mechanism(range) != QUIRE_UFFD)
        std::puts(quire_status_name(status));
    return quire_range_release(range);
}
