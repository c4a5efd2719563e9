"""Memory that a background save takes beyond the data, seen from outside, under as many updates as one client can send.

Two witnesses: the proportional set size of the server, sampled while it saves, and, as root, the peak of a memory cgroup that the
server is alone in. Neither may rise by more than `checkpoint-max-extra-memory` and 16 MiB, whatever the values are: many small
strings, one hash of a million fields, one string of 512 MiB; nor if only what has changed is saved. The server runs as an
ordinary user, without CAP_SYS_NICE. Where there is no such cgroup a test counts as skipped once the other witness has been heard.
"""

import contextlib
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from images import Place

MIB = 1 << 20
ALLOWANCE = 16 * MIB
STRINGS = 150_000
FIELDS = 1_000_000
LARGE = 512 * MIB
# Requests of one batch: their replies fit into the server's buffers.
BATCH = 500


class Cgroup:
    """A memory cgroup (version 1) with one process in it."""

    ROOT = "/sys/fs/cgroup/memory"

    @classmethod
    def is_possible(cls):
        return os.geteuid() == 0 and os.path.exists(f"{cls.ROOT}/memory.max_usage_in_bytes")

    def __init__(self, pid):
        self.dir = f"{self.ROOT}/quire-test-{pid}"
        os.mkdir(self.dir)
        self._write("cgroup.procs", pid)
        self.pid = pid

    def _write(self, name, value, group=None):
        with open(os.path.join(group or self.dir, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def _read(self, name):
        with open(os.path.join(self.dir, name), encoding="ascii") as file:
            return int(file.read())

    def begin(self):
        """From here on the peak is noted."""
        self._write("memory.max_usage_in_bytes", 0)
        self.before = self._read("memory.usage_in_bytes")

    def extra(self):
        return self._read("memory.max_usage_in_bytes") - self.before

    def close(self):
        with contextlib.suppress(OSError):
            self._write("cgroup.procs", self.pid, self.ROOT)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(self.dir)
                return
            time.sleep(0.05)


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


class Updates(threading.Thread):
    """One client that sends updates as fast as they are answered, until it is told to stop."""

    def __init__(self, port, request):
        super().__init__()
        self.connection = harness.Raw(port)
        dice = random.Random(7)
        self.batches = [b"".join(request(dice) for _ in range(BATCH)) for _ in range(100)]
        self.sent = 0
        self.goes_on = True
        self.failure = None

    def run(self):
        try:
            while self.goes_on:
                self.connection.send(self.batches[self.sent // BATCH % len(self.batches)])
                for _ in range(BATCH):
                    reply = self.connection.reply()
                    assert not isinstance(reply, harness.ReplyError), reply
                self.sent += BATCH
        except Exception as failure:  # Raised again by the thread that waits for this one.
            self.failure = failure
        finally:
            self.connection.close()

    def end(self):
        self.goes_on = False
        self.join()
        if self.failure:
            raise self.failure


def measure(server, connection, budget, request):
    """Saves under updates; returns the figures. The peak of the cgroup is None where there is none."""
    pid = server.process.pid
    group = Cgroup(pid) if Cgroup.is_possible() else None
    try:
        updates = Updates(server.port, request)
        updates.start()
        # What the updates themselves take is there before the save begins.
        while updates.sent < 20 * BATCH and updates.is_alive():
            time.sleep(0.01)
        before = pss(pid)
        if group:
            group.begin()
        at_start, peak, last = updates.sent, before, before
        connection.call("BGSAVE")
        while connection.info("persistence")["rdb_bgsave_in_progress"] == "1":
            # The kernel walks over the memory while the server works: what goes from one mapping to another meanwhile may be counted twice in one walk, not
            # in two that follow each other. The group's figure, which misses nothing, has no such error.
            now = pss(pid)
            peak, last = max(peak, min(last, now)), now
            time.sleep(0.005)
        during = updates.sent - at_start
        updates.end()
        info = connection.info()
        assert info["rdb_last_bgsave_status"] == "ok", info
        extra, seen = peak - before, group.extra() if group else None
    finally:
        if group:
            group.close()
    waits = f"{info['writer_waits']} waits, the longest {info['writer_wait_longest_us']} us"
    text = f"PSS +{extra / MIB:.1f} MiB, cgroup {'none' if seen is None else f'+{seen / MIB:.1f} MiB'}, {during} updates, {waits}"
    for name, bytes_more in (("PSS", extra), ("cgroup", seen or 0)):
        assert bytes_more <= budget * MIB + ALLOWANCE, f"{name}: {text}"
    assert during > 0, text
    return f"{budget} MiB: {text}"


def saves(options, fill, request, *settings):
    """Two saves, with the smallest budget of the promise and with the default."""
    notes = []
    for budget in (8, 64):
        words = ("--checkpoint-max-extra-memory", f"{budget}mb", *settings)
        with Place(options) as place, place.server(*words) as server:
            connection = server.ready()
            fill(connection)
            notes.append(measure(server, connection, budget, request))
            deltas = connection.info("persistence")["checkpoint_chain_deltas"]
            assert deltas == ("1" if settings else "0"), f"{deltas} deltas with {settings}"
    text = "; ".join(notes)
    harness.skip_unless(Cgroup.is_possible(), f"the peak takes root and cgroups of version 1; without it: {text}")
    return text


def strings(options):
    value = "x" * 1000
    return saves(
        options,
        lambda connection: connection.call("DEBUG", "POPULATE", str(STRINGS), "k", "1000"),
        lambda dice: harness.Raw.encode("SET", f"k:{dice.randrange(STRINGS)}", value),
    )


def deltas(options):
    value = "x" * 1000

    def fill(connection):
        connection.call("DEBUG", "POPULATE", str(STRINGS), "k", "1000")
        connection.call("SAVE")

    # A tenth of the keys: with more than half of the image changed the save would be a full one.
    return saves(
        options,
        fill,
        lambda dice: harness.Raw.encode("SET", f"k:{dice.randrange(STRINGS // 10)}", value),
        "--checkpoint-incremental",
        "yes",
    )


def a_hash_of_a_million_fields(options):
    def fill(connection):
        for start in range(0, FIELDS, 1000):
            words = [word for field in range(start, start + 1000) for word in (f"f:{field}", "x" * 50)]
            connection.call("HSET", "h", *words)

    return saves(
        options, fill, lambda dice: harness.Raw.encode("HSET", "h", f"f:{dice.randrange(FIELDS)}", "y" * 50)
    )


def a_string_of_512_mib(options):
    def fill(connection):
        piece = "x" * (8 * MIB)
        connection.call("SETRANGE", "s", str(LARGE - 1), "x")
        for start in range(0, LARGE, len(piece)):
            connection.call("SETRANGE", "s", str(start), piece)

    return saves(
        options,
        fill,
        lambda dice: harness.Raw.encode("SETRANGE", "s", str(dice.randrange(LARGE // 4096) * 4096), "y" * 64),
    )


if __name__ == "__main__":
    harness.run([strings, deltas, a_hash_of_a_million_fields, a_string_of_512_mib], harness.arguments(__doc__))
