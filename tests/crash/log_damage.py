"""Flipped bits in every structure of a log, and files that lost their ends: a server started on it has every acknowledged
write, or is refused with file and offset and leaves the directory as it was, byte for byte.

Relies on nothing but the binary. Offsets are the same in every run.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

LOGGING = ("--appendonly", "yes", "--appendfsync", "always", "--log-segment-bytes", "1mb", "--log-max-bytes", "8mb")
KEYS = 700
# Beginnings of the header's fields, and of the first record's.
FIELDS = (0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 76, 504, 4096, 4104, 4112, 4116, 4120, 4124, 4128, 4136)
HEADER_BYTES = 512


class Template:
    """A data directory whose server was ended, and what is in it."""

    def __init__(self, quire, path):
        self.quire, self.path = quire, path
        self.log = path + ".log"
        os.mkdir(path)
        with harness.Quire(quire, path, *LOGGING, log=self.log) as server:
            connection = server.ready()
            for number in range(KEYS):
                connection.call("SET", f"key:{number}", f"{number}:" + "x" * 4000)
                if number == KEYS // 2:
                    # Some segments become spares.
                    connection.call("BGREWRITEAOF")
                    connection.wait_saved()
            self.digest = connection.digest()
            assert server.terminate() == 0
        names = os.listdir(path)
        self.segments = sorted(name for name in names if name.startswith("quire-log-"))
        assert len(self.segments) >= 3, names

    def start(self, change, name):
        """Starts a server on a copy with a changed file. Returns why it was refused, or None if all is there."""
        copy = self.path + "-copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy)
        with open(os.path.join(copy, name), "r+b") as file:
            change(file)
        before = content(copy)
        log = self.path + "-copy.log"
        if os.path.exists(log):
            os.remove(log)
        with harness.Quire(self.quire, copy, *LOGGING, log=log) as server:
            try:
                connection = server.ready()
            except AssertionError:
                assert server.process.wait() == 1, server.log_text()
                assert content(copy) == before, "a refused start has changed the directory"
                return server.log_text()
            assert connection.digest() == self.digest, f"{name}: writes are lost"
            return None


def content(directory):
    """Hashes of all files; locks stay behind, empty."""
    found = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return {name: digest for name, digest in found.items() if not name.endswith(".lock")}


def flip(offset):
    def change(file):
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << offset % 8)]))

    return change


def told(reason, name):
    """Whether a refusal says where and what to do."""
    assert "--accept-damaged-log" in reason and "quire log verify" in reason, reason
    assert name in reason and "at byte" in reason or "is wanted" in reason, reason


def flipped_bits(options):
    dice = random.Random(15)
    refused = starts = 0
    with harness.scratch() as where:
        template = Template(options.quire, os.path.join(where, "data"))
        for name in template.segments:
            size = os.path.getsize(os.path.join(template.path, name))
            offsets = FIELDS + tuple(dice.randrange(HEADER_BYTES) for _ in range(4))
            offsets += tuple(dice.randrange(4096, size) for _ in range(8))
            for offset in offsets:
                reason = template.start(flip(offset), name)
                starts += 1
                if reason is not None:
                    refused += 1
                    told(reason, name)
                assert reason is not None or offset >= HEADER_BYTES, f"{name}: byte {offset} of the header is accepted"
    assert refused > starts // 2
    return f"{starts} starts, {refused} refused"


def lost_headers_and_ends(options):
    with harness.scratch() as where:
        template = Template(options.quire, os.path.join(where, "data"))
        for name in template.segments:
            reason = template.start(lambda file: file.write(bytes(4096)), name)
            assert reason is not None, f"{name}: zeros for a header are accepted"
            told(reason, name)
            verify = [options.quire, "log", "verify", template.path + "-copy"]
            found = subprocess.run(verify, capture_output=True, text=True, check=False)
            assert found.returncode == 1 and name in found.stderr, (found.stdout, found.stderr)
            for length in (0, 300, 4096, 500_000):
                reason = template.start(lambda file, length=length: file.truncate(length), name)
                if reason is not None:
                    told(reason, name)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([flipped_bits, lost_headers_and_ends], OPTIONS)
