"""Flipped bits in every structure of images and deltas, with a server started on each: it names the file and ends, and leaves the
directory as it was, byte for byte; or, told to accept damage, it serves what is sound, and its next save keeps the damaged file.

Relies on nothing but the binary. Offsets are the same in every run.
"""

import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from log_damage import content, flip

PAGE = 4096
# Beginnings of the header's fields in an image and in a delta, a byte that is not used, and the checksum's last byte.
IMAGE_HEADER = (0, 8, 12, 16, 20, 24, 32, 40, 44, 48, 56, 64, 128, 2000, 4088, 4095)
DELTA_HEADER = (0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 68, 72, 136, 2000, 4088, 4095)
FOOTER = (0, 8, 16, 24, 32, 40, 48, 52, 56, 60, 2000, 4080, 4088, 4095)
DATA_SAMPLES = 6
CHAIN = ("--checkpoint-incremental", "yes", "--checkpoint-compression", "lz4")


def number(data, offset, length):
    return int.from_bytes(data[offset : offset + length], "little")


def settled(server, limit_s=120):
    """A connection to a server that has verified what it started from; None if it has ended."""
    end = time.monotonic() + limit_s
    while server.process.poll() is None:
        assert time.monotonic() < end, "the server neither verifies its image nor ends"
        try:
            connection = harness.Raw(server.port)
            if connection.info("persistence")["restore_in_progress"] == "0":
                return connection
        except OSError:
            pass
        time.sleep(0.005)
    return None


class Template:
    """A data directory whose server was killed after its last save."""

    def __init__(self, quire, path, *settings):
        self.quire, self.path, self.settings = quire, path, settings
        os.mkdir(path)
        with self.server(path) as server:
            connection = server.ready()
            connection.call("DEBUG", "POPULATE", "5000", "k", "500")
            connection.call("HSET", "hash", "field", "value")
            connection.call("SAVE")
            if settings:
                connection.call("SET", "k:17", "changed")
                connection.call("SAVE")
            self.digest = connection.digest()
            server.kill9()
        self.links = sorted(name for name in os.listdir(path) if name.startswith("dump.quire"))

    def server(self, directory, *more):
        return harness.Quire(self.quire, directory, *self.settings, *more, log=self.path + ".log")

    def data(self, name):
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def damaged(self, name, offset):
        """A copy with a flipped bit."""
        copy = self.path + "-copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy)
        with open(os.path.join(copy, name), "r+b") as file:
            flip(offset)(file)
        return copy

    def refused(self, server, before, name):
        """What holds of a server that did not accept the damage."""
        told = server.log_text().strip().splitlines()[-1]
        assert server.process.wait() == 1, server.log_text()
        assert name in told or "dump.quire" in told, told
        assert content(server.dir) == before, "the directory has changed"

    def started(self, name, offset, *more):
        """Whether a server serves the damaged file; if so, it has all the data."""
        copy = self.damaged(name, offset)
        before = content(copy)
        self.clear_log()
        with self.server(copy, *more) as server:
            connection = settled(server)
            if connection is None:
                self.refused(server, before, name)
                return False
            assert connection.digest() == self.digest, "other data is served"
            return True

    def accepted(self, name, offset, *more):
        """Whether a server that is to accept the damage serves. If so, its next save keeps what was damaged, and can be started from."""
        copy = self.damaged(name, offset)
        before = content(copy)
        self.clear_log()
        with self.server(copy, "--accept-damaged-image", "yes", *more) as server:
            connection = settled(server)
            if connection is None:
                self.refused(server, before, name)
                return False
            assert connection.call("DBSIZE") > 0
            assert connection.call("SAVE") == "OK"
            now = content(copy)
            kept = [digest for file, digest in now.items() if ".damaged-" in file]
            assert before[name] in kept, (os.listdir(copy), server.log_text())
            keys = connection.call("DBSIZE")
            server.kill9()
        with self.server(copy) as server:
            connection = settled(server)
            assert connection is not None and connection.call("DBSIZE") == keys, server.log_text()
            return True

    def clear_log(self):
        if os.path.exists(self.path + ".log"):
            os.remove(self.path + ".log")


def table_of(data):
    footer = len(data) - PAGE
    return number(data, footer, 8), number(data, footer + 8, 8)


def structures(data):
    """Offsets in every structure of a link, its data left out."""
    table, table_bytes = table_of(data)
    if data.startswith(b"QUIREDLT"):
        header, entries = DELTA_HEADER, 16 * number(data, 68, 4)
        parts = (0, 4, 8, entries - 1)
        if number(data, 8, 4) == 2:
            parts += (entries, entries + 4, entries + 8)
    else:
        pages = number(data, 44, 4)
        bits, sums = 8 * -(-pages // 64), 8 * -(-pages // 512)
        header, parts = IMAGE_HEADER, (0, bits - 1, bits, bits + sums - 1, table_bytes - 1)
        if number(data, 8, 4) == 3:
            parts += (bits + sums, bits + sums + 4, bits + sums + 8)
    footer = len(data) - PAGE
    return [*header, *(table + at for at in parts), *(footer + at for at in FOOTER)]


def pages_with_contents(data, dice):
    """Bytes of pages, or of what they were compressed to, that were written: what was not is zero."""
    start = PAGE if data.startswith(b"QUIREDLT") else 2 << 20
    end = table_of(data)[0]
    found = []
    while len(found) < DATA_SAMPLES:
        offset = dice.randrange(start, end)
        if data[offset] != 0:
            found.append(offset)
    return found


def flipped_bits(template):
    """Starts servers on each damage of each link, in both modes by turns, and every second time one that accepts it."""
    dice = random.Random(18)
    starts = served = turn = 0
    for name in template.links:
        data = template.data(name)
        for offset in structures(data) + pages_with_contents(data, dice):
            turn += 1
            modes = ("map", "load") if turn % 4 < 2 else ("load", "map")
            where = f"{name}, byte {offset}, {modes}"
            try:
                assert not template.started(name, offset, "--restore-mode", modes[0]), "it is accepted unasked"
                starts += 1
                if turn % 2 == 0:
                    served += template.accepted(name, offset, "--restore-mode", modes[1])
                    starts += 1
            except AssertionError as error:
                raise AssertionError(where) from error
    assert served > 0, "no damage was accepted"
    return f"{starts} starts, {served} on accepted damage"


def bits_of_an_image(options):
    with harness.scratch() as where:
        template = Template(options.quire, os.path.join(where, "data"))
        assert template.links == ["dump.quire"]
        # Between header and data nothing is read; `quire image verify` looks there.
        assert template.started("dump.quire", PAGE + 7)
        return flipped_bits(template)


def bits_of_a_compressed_image_and_its_delta(options):
    with harness.scratch() as where:
        template = Template(options.quire, os.path.join(where, "data"), *CHAIN)
        assert template.links == ["dump.quire", "dump.quire.delta-1"]
        return flipped_bits(template)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([bits_of_an_image, bits_of_a_compressed_image_and_its_delta], OPTIONS)
