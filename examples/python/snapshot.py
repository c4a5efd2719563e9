"""libquire.so from Python, by ctypes: a snapshot of memory that goes on changing, and a file as memory.

    python3 snapshot.py [LIBRARY]        usual: libquire.so.0, where the loader finds it

quire.h says what each function promises and asks for.
"""

import ctypes
import os
import sys
import tempfile

BEST = 0  # QUIRE_BEST: the library picks the mechanism
MAP_CREATE = 1  # QUIRE_MAP_CREATE: make the file if there is none


class MapOptions(ctypes.Structure):
    """quire_map_options. A field that is zero means "as usual"."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("reserve_bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("servers", ctypes.c_uint64),
    ]


class QuireError(Exception):
    """A call that failed, in the library's words."""


class Quire:
    """The library with the types of the functions that are used here. Without them ctypes would cut pointers to 32 bits."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        handle, out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
        for name, result, arguments in [
            ("quire_version", ctypes.c_char_p, []),
            ("quire_last_error", ctypes.c_char_p, []),
            ("quire_range_create", ctypes.c_int32, [ctypes.c_size_t, ctypes.c_int32, handle, out]),
            ("quire_range_base", handle, [handle]),
            ("quire_range_why", ctypes.c_char_p, [handle]),
            ("quire_prepare_write", ctypes.c_int32, [handle, ctypes.c_size_t, ctypes.c_size_t]),
            ("quire_cut", ctypes.c_int32, [handle, out]),
            ("quire_read", ctypes.c_int32, [handle, ctypes.c_size_t, handle, ctypes.c_size_t]),
            ("quire_snapshot_release", ctypes.c_int32, [handle]),
            ("quire_range_release", ctypes.c_int32, [handle]),
            ("quire_pool_create", ctypes.c_int32, [ctypes.c_size_t, handle, out]),
            ("quire_map", ctypes.c_int32, [handle, ctypes.c_char_p, ctypes.POINTER(MapOptions), out]),
            ("quire_map_ptr", handle, [handle]),
            ("quire_map_grow", ctypes.c_int32, [handle, ctypes.c_uint64]),
            ("quire_map_sync", ctypes.c_int32, [handle]),
            ("quire_map_release", ctypes.c_int32, [handle]),
            ("quire_pool_release", ctypes.c_int32, [handle]),
        ]:
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name, *arguments):
        """Calls a function that returns a status."""
        if getattr(self.library, name)(*arguments) != 0:
            raise QuireError(f"{name}: {self.library.quire_last_error().decode()}")

    def made(self, name, *arguments):
        """Calls a function that leaves a handle behind its last argument."""
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle


def snapshot_of_memory(quire):
    """Numbers are changed after a cut, and the snapshot has those from before."""
    count = 100_000
    size = count * ctypes.sizeof(ctypes.c_uint64)
    memory = quire.made("quire_range_create", size, BEST, None)
    numbers = (ctypes.c_uint64 * count).from_address(quire.library.quire_range_base(memory))
    numbers[:] = range(count)
    snapshot = quire.made("quire_cut", memory)
    # A duty with the mechanism that goes by announcements, and next to nothing with the others.
    quire.call("quire_prepare_write", memory, 0, size)
    numbers[:] = [0] * count
    seen = (ctypes.c_uint64 * count)()
    quire.call("quire_read", snapshot, 0, seen, size)
    why = quire.library.quire_range_why(memory).decode()
    print(f"mechanism: {why}")
    print(f"now {sum(numbers)}, in the snapshot {sum(seen)}")
    assert sum(numbers) == 0 and sum(seen) == count * (count - 1) // 2
    quire.call("quire_snapshot_release", snapshot)
    quire.call("quire_range_release", memory)


def file_as_memory(quire, path):
    """A file of 4 MiB is written as memory, with 1 MiB of memory for its pages, and made durable."""
    pool = quire.made("quire_pool_create", 1 << 20, None)
    options = MapOptions(struct_size=ctypes.sizeof(MapOptions), reserve_bytes=1 << 30, flags=MAP_CREATE)
    mapping = quire.made("quire_map", pool, path.encode(), ctypes.byref(options))
    length = 4 << 20
    quire.call("quire_map_grow", mapping, length)
    first = quire.library.quire_map_ptr(mapping)
    for offset in range(0, length, 64 << 10):
        text = b"page at %d\n" % offset
        ctypes.memmove(first + offset, text, len(text))
    quire.call("quire_map_sync", mapping)
    quire.call("quire_map_release", mapping)
    quire.call("quire_pool_release", pool)
    with open(path, "rb") as file:
        content = file.read()
    assert len(content) == length and content[3 << 20 :].startswith(b"page at %d\n" % (3 << 20))
    print(f"{path}: {len(content)} bytes, written through a pool of {1 << 20}")


def main(words):
    quire = Quire(words[1] if len(words) > 1 else "libquire.so.0")
    print(f"libquire {quire.library.quire_version().decode()}")
    snapshot_of_memory(quire)
    with tempfile.TemporaryDirectory() as folder:
        try:
            file_as_memory(quire, os.path.join(folder, "pages"))
        except QuireError as error:
            # Without userfaultfd files can't be memory; leases (quire_file_open) work everywhere.
            print(f"left out: {error}")


if __name__ == "__main__":
    main(sys.argv)
