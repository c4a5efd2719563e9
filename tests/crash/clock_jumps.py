"""The wall clock of a running server jumps by a day, forwards and backwards, while keys have expiries, save rules are on and a client
is paused: keys expire by the wall clock, as in Redis; all else goes on by the time that passes.

Relies on Debian's package faketime, whose library gives the server another wall clock; the monotonic clock stays the system's.
"""

import glob
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

DAY_S = 86_400
LIMIT_S = 120
# What replies and ticks may take on a machine that is busy.
SLACK_S = 600


class WallClock:
    """A clock of a server, so many seconds ahead of the system's."""

    def __init__(self, directory):
        [self.library] = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        self.path = os.path.join(directory, "clock")
        self.jump(0)

    def jump(self, ahead_s):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(f"{ahead_s:+d}\n")
        os.rename(self.path + ".new", self.path)

    def environment(self):
        return os.environ | {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": self.path,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def eventually(what, holds):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"in vain waited for: {what}"
        time.sleep(0.01)


def saves(connection):
    return int(connection.info("persistence")["rdb_saves"])


def saved_again(connection, value):
    """A change leads to a save by the rule."""
    before = saves(connection)
    connection.call("SET", "changed", value)
    eventually("the rule leads to a save", lambda: saves(connection) > before)


def jumped(connection, ahead_s):
    """Waits until the server's clock shows that it has jumped."""
    eventually("the clock jumps", lambda: abs(int(connection.call("TIME")[0]) - time.time() - ahead_s) < SLACK_S)


def wait_paused(connection, clients):
    eventually("the writer waits", lambda: connection.info()["paused_clients"] == str(clients))


def remaining_days(connection, key):
    return round(connection.call("TTL", key) / DAY_S)


def a_jump(options, ahead_s):
    with harness.scratch() as directory:
        clock = WallClock(directory)
        # A client that is idle for longer than this is closed; a day of the wall clock is no time that passes.
        settings = ("--save", "1 1", "--timeout", "3600")
        with harness.Quire(options.quire, directory, *settings, env=clock.environment()) as server:
            connection, writer = server.ready(), harness.Raw(server.port)
            connection.call("SET", "days", "1", "EX", 10 * DAY_S)
            connection.call("SET", "hour", "1", "EX", 3600)
            saved_again(connection, "before")
            connection.call("CLIENT", "PAUSE", 3_600_000, "WRITE")
            writer.send(harness.Raw.encode("SET", "paused", "1"))
            wait_paused(connection, 1)
            clock.jump(ahead_s)
            jumped(connection, ahead_s)
            # The pause goes on: it counts the time that passes.
            wait_paused(connection, 1)
            assert connection.call("EXISTS", "paused") == 0
            assert connection.call("EXISTS", "hour") == int(ahead_s < 0)
            assert remaining_days(connection, "days") == 10 - ahead_s // DAY_S
            connection.call("CLIENT", "UNPAUSE")
            assert writer.reply() == "OK"
            keys = 4 if ahead_s < 0 else 3
            eventually("what has expired goes, and nothing else", lambda: connection.call("DBSIZE") == keys)
            connection.call("SET", "soon", "1", "PX", 50)
            eventually("what expires later goes, too", lambda: connection.call("DBSIZE") == keys)
            saved_again(connection, "after")
            assert abs(connection.call("LASTSAVE") - time.time() - ahead_s) < SLACK_S
            failed_saves_are_tried_again(server, connection, clock, ahead_s)
            assert server.terminate() == 0, server.log_text()
        assert "panic" not in server.log_text()
        starts_again(options, directory, clock, ahead_s)


def failed_saves_are_tried_again(server, connection, clock, ahead_s):
    """Saves fail while the clock jumps back to where it was, and are tried again and again."""
    image = harness.image_path(server)
    os.rename(image, image + ".aside")
    os.mkdir(image)
    failures = lambda: server.log_text().count("the save failed")
    connection.call("SET", "changed", "unsaved")
    eventually("a save fails", lambda: failures() > 0)
    clock.jump(0)
    jumped(connection, 0)
    before = failures()
    eventually("it is tried again", lambda: failures() > before)
    os.rmdir(image)
    eventually("it succeeds", lambda: connection.info("persistence")["rdb_last_bgsave_status"] == "ok")
    os.unlink(image + ".aside")
    clock.jump(ahead_s)
    jumped(connection, ahead_s)


def starts_again(options, directory, clock, ahead_s):
    """From an image that was saved at another time, on a system whose clock is right."""
    clock.jump(0)
    with harness.Quire(options.quire, directory, env=clock.environment()) as server:
        connection = server.ready()
        connection.wait_restored()
        assert connection.call("GET", "changed") == b"unsaved"
        assert remaining_days(connection, "days") == 10
        # A jump forwards had expired it.
        assert connection.call("EXISTS", "hour") == int(ahead_s < 0)


def a_day_forwards(options):
    a_jump(options, DAY_S)


def a_day_backwards(options):
    a_jump(options, -DAY_S)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([a_day_forwards, a_day_backwards], OPTIONS)
