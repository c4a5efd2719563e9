"""Servers on sound and damaged images, as ordinary users run them: starts, saves, signals and the end.

Nothing here needs root. Where the tests run as root they give the server to the user 65534 (setpriv), so that what only root
may do is not taken for granted. What must hold whenever a signal falls: a damaged image is never replaced unless that was
accepted, and then it is kept; what was acknowledged before a good save is there afterwards.
"""

import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

UNPRIVILEGED = 65534
RULES = ["--save", "3600 1"]


class Ordinary(harness.Quire):
    """A server that runs as an ordinary user."""

    def __init__(self, binary, directory, *args, **popen):
        if os.geteuid() == 0:
            popen |= {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        super().__init__(binary, directory, *args, **popen)

    def ended(self, limit_s=120):
        return self.process.wait(limit_s)


def reachable(path):
    """Whether any user can get to `path`."""
    parents = [path]
    while parents[-1] != "/":
        parents.append(os.path.dirname(parents[-1]))
    return all(os.stat(parent).st_mode & 0o001 for parent in parents)


class Place:
    """A directory for an ordinary user's server, and a binary that this user can reach."""

    def __init__(self, options):
        self.binary = options.quire

    def __enter__(self):
        as_root = os.geteuid() == 0
        self.outer = tempfile.mkdtemp(prefix="quire-test-", dir=harness.SCRATCH_PARENT)
        if as_root and not reachable(os.path.dirname(self.outer)):
            os.rmdir(self.outer)
            self.outer = tempfile.mkdtemp(prefix="quire-test-")
        self.dir = os.path.join(self.outer, "data")
        self.log = os.path.join(self.outer, "server.log")
        os.mkdir(self.dir)
        if as_root:
            os.chmod(self.outer, 0o755)
            os.chown(self.dir, UNPRIVILEGED, UNPRIVILEGED)
            if not reachable(self.binary):
                self.binary = shutil.copy(self.binary, self.outer)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.outer, ignore_errors=True)

    def server(self, *args):
        return Ordinary(self.binary, self.dir, *args, log=self.log)

    @property
    def image(self):
        return os.path.join(self.dir, "dump.quire")

    def read(self):
        with open(self.image, "rb") as file:
            return file.read()

    def kept(self):
        return [name for name in os.listdir(self.dir) if ".damaged-" in name]

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()


def populate(connection, keys=20_000):
    connection.call("DEBUG", "POPULATE", str(keys), "k", "500")
    return connection.digest()


def make_image(place):
    """An image with some MiB; returns its digest."""
    with place.server() as server:
        connection = server.ready()
        digest = populate(connection)
        connection.call("SAVE")
        server.kill9()
    return digest


def flip(path):
    """Changes a bit in the last page of the data that has content."""
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        at = file.tell() - (64 << 10)
        byte = b"\0"
        while byte == b"\0":
            at -= 512
            file.seek(at)
            byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


def saves_under_load_as_an_ordinary_user(options):
    with Place(options) as place:
        with place.server(*RULES, "--checkpoint-max-extra-memory", "1mb") as server:
            connection = server.ready()
            populate(connection)
            assert connection.info()["save_thread_priority"] in ("normal", "lowered")
            if os.geteuid() == 0:
                assert connection.info()["save_thread_priority"] == "normal", "it could not be raised again"
            connection.call("BGSAVE")
            batch = b"".join(harness.Raw.encode("SET", f"k:{number}", "x" * 500) for number in range(0, 20_000, 4))
            connection.send(batch)
            for _ in range(0, 20_000, 4):
                assert connection.reply() == "OK"
            info = connection.wait_saved()
            assert info["rdb_last_bgsave_status"] == "ok", info
            digest = connection.digest()
            assert server.terminate() == 0, place.log_text()
        assert place.log_text().count("goodbye") == 1, "it says goodbye once"
        with place.server() as server:
            assert server.ready().digest() == digest


def an_unwritable_directory_ends_the_start(options):
    with Place(options) as place:
        make_image(place)
        if os.geteuid() == 0:
            os.chown(place.dir, 0, 0)
        os.chmod(place.dir, 0o555)
        with place.server(*RULES) as server:
            assert server.ended() == 1
        assert "can't be written" in place.log_text() and "--dir" in place.log_text(), place.log_text()
        with place.server("--save", "") as server:
            server.ready()
            assert server.terminate() == 0
        os.chmod(place.dir, 0o755)


def a_server_that_can_not_save_tries_again_at_the_next_ctrl_c(options):
    with Place(options) as place:
        with place.server(*RULES) as server:
            connection = server.ready()
            connection.call("SET", "a", "1")
            os.chmod(place.dir, 0o555)
            if os.geteuid() == 0:
                os.chown(place.dir, 0, 0)
            for attempt in (1, 2):
                server.process.send_signal(signal.SIGINT)
                end = time.monotonic() + 60
                while place.log_text().count("so the server stays") < attempt:
                    assert time.monotonic() < end and server.process.poll() is None, place.log_text()
                    time.sleep(0.01)
                assert connection.call("GET", "a") == b"1"
            os.chmod(place.dir, 0o777)
            server.process.send_signal(signal.SIGINT)
            assert server.ended() == 0, place.log_text()
        with place.server() as server:
            assert server.ready().call("GET", "a") == b"1"


def signals_and_saves_during_a_restore(options):
    """Of a sound and of a damaged image, whether they fall before the image is verified or after."""
    with Place(options) as place:
        digest = make_image(place)
        whole = place.read()
        for damaged in (False, True):
            for way in ("TERM", "INT", "SAVE", "BGSAVE", "SHUTDOWN"):
                with open(place.image, "wb") as file:
                    file.write(whole)
                if damaged:
                    flip(place.image)
                before = place.read()
                with place.server(*RULES) as server:
                    connection = server.ready()
                    try:
                        connection.call("SET", "during", way)
                        if way in ("TERM", "INT"):
                            server.process.send_signal(getattr(signal, "SIG" + way))
                        elif way == "SHUTDOWN":
                            connection.call("SHUTDOWN", "SAVE")
                        else:
                            connection.call(way)
                            connection.wait_saved()
                            connection.call("SHUTDOWN", "SAVE")
                    except (harness.ReplyError, ConnectionError, socket.timeout):
                        pass
                    code = server.ended()
                if damaged:
                    assert code == 1 and "region" in place.log_text(), (way, place.log_text()[-2000:])
                    assert place.read() == before, f"{way}: the damaged image was replaced"
                else:
                    assert code == 0, (way, place.log_text()[-2000:])
                    with place.server() as server:
                        connection = server.ready()
                        assert connection.call("GET", "during") == way.encode(), way
                        connection.call("DEL", "during")
                        assert connection.digest() == digest, way


def an_accepted_damaged_image_is_kept(options):
    with Place(options) as place:
        make_image(place)
        flip(place.image)
        damaged = place.read()
        for mode in ("map", "load"):
            with open(place.image, "wb") as file:
                file.write(damaged)
            with place.server(*RULES, "--restore-mode", mode, "--accept-damaged-image") as server:
                connection = server.ready()
                connection.call("SET", "a", "1")
                assert server.terminate() == 0, place.log_text()
            [kept] = place.kept()
            with open(os.path.join(place.dir, kept), "rb") as file:
                assert file.read() == damaged
            os.unlink(os.path.join(place.dir, kept))
            with place.server() as server:
                assert server.ready().call("GET", "a") == b"1"
                server.kill9()


def a_truncated_image_gives_what_it_has(options):
    with Place(options) as place:
        make_image(place)
        os.truncate(place.image, os.path.getsize(place.image) - 6000)
        with place.server() as server:
            assert server.ended() == 1
        assert "bytes instead of" in place.log_text() and "--accept-damaged-image" in place.log_text()
        with place.server(*RULES, "--accept-damaged-image") as server:
            connection = server.ready()
            found = connection.call("MGET", *(f"k:{number}" for number in range(20_000)))
            wrong = [key for key, value in enumerate(found) if value is not None and not value.startswith(b"value:%d" % key)]
            # What lay in the last page with contents is lost: the entries of a few keys.
            lost = [key for key, value in enumerate(found) if value is None]
            assert not wrong and len(lost) < 500, (wrong[:10], len(lost), lost[:10], place.log_text()[-2500:])
            assert connection.call("DBSIZE") == 20_000
            assert server.terminate() == 0
        assert len(place.kept()) == 1, os.listdir(place.dir)


def keys_or_end(server, limit_s=120):
    """How many keys a server says that it has; None if it has ended. Other commands may meet what is damaged."""
    end = time.monotonic() + limit_s
    while server.process.poll() is None:
        assert time.monotonic() < end, "neither an answer nor an end"
        try:
            return harness.Raw(server.port).call("DBSIZE")
        except harness.ReplyError as error:
            assert str(error).startswith("LOADING"), error
        except OSError:
            pass
        time.sleep(0.005)
    return None


def damage_that_leaves_nothing_stops_the_start(options):
    """Page after page of a small image is zeroed. With --accept-damaged-image a server has keys, or is refused and the image
    stays as it is; it never serves empty data as if that were all there was."""
    page = 4096
    with Place(options) as place:
        with place.server() as server:
            connection = server.ready()
            for number in range(100):
                connection.call("SET", f"k:{number}", "x" * 300)
            connection.call("SAVE")
            server.kill9()
        whole = place.read()
        pages = [at for at in range(0, len(whole), page) if whole[at : at + page].strip(b"\0")]
        changes = [[at] for at in pages] + [pages[:1] + pages[-1:], pages]
        refused = 0
        for mode in ("map", "load"):
            for change in changes:
                damaged = bytearray(whole)
                for at in change:
                    damaged[at : at + page] = bytes(page)
                with open(place.image, "wb") as file:
                    file.write(damaged)
                with place.server(*RULES, "--restore-mode", mode, "--accept-damaged-image") as server:
                    keys = keys_or_end(server)
                    server.kill9()
                    assert keys is None or keys > 0, (mode, change, place.log_text())
                    if keys is None:
                        assert server.process.returncode == 1, place.log_text()
                        last = place.log_text().strip().splitlines()[-1]
                        assert "Nothing of the image can be recovered" in last and "move" in last, last
                        refused += 1
                assert place.read() == damaged and not place.kept(), (mode, change)
        assert 0 < refused < 2 * len(changes), refused
        return f"{2 * len(changes)} starts, {refused} refused"


def a_lock_of_another_user_is_heeded(options):
    with Place(options) as place:
        for name in (".dump.quire.lock", ".quire-log.lock"):
            open(os.path.join(place.dir, name), "wb").close()
            os.chmod(os.path.join(place.dir, name), 0o444)
        if os.geteuid() != 0:
            os.chmod(place.dir, 0o777)
        with place.server("--appendonly", "yes") as server:
            server.ready()
            with place.server("--appendonly", "yes") as second:
                assert second.ended() == 1
            assert "another server uses the image" in place.log_text(), place.log_text()
            with place.server("--appendonly", "yes", "--dbfilename", "other.quire") as second:
                assert second.ended() == 1
            assert "another server has its log" in place.log_text(), place.log_text()


def a_server_does_not_move_to_the_image_of_another(options):
    with Place(options) as place, place.server() as first:
        first.ready().call("SET", "owner", "first")
        more = ("--dbfilename", "other.quire", "--enable-protected-configs", "yes")
        with place.server(*more) as second:
            connection = second.ready()
            for directory in (place.dir, os.path.join(place.dir, "..", os.path.basename(place.dir))):
                try:
                    connection.call("CONFIG", "SET", "dir", directory, "dbfilename", "dump.quire")
                    raise AssertionError("it moves there")
                except harness.ReplyError as error:
                    assert "another server uses the image" in str(error), error
            connection.call("CONFIG", "SET", "dir", os.path.join(place.dir, "."))
            for name in ("third.quire", "other.quire", "third.quire"):
                connection.call("CONFIG", "SET", "dbfilename", name)
                connection.call("SAVE")
            with place.server("--dbfilename", "third.quire") as third:
                assert third.ended() == 1
        assert not os.path.exists(place.image)


def a_limit_of_file_sizes_fails_the_save_and_not_the_server(options):
    with Place(options) as place:
        lower = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        with Ordinary(place.binary, place.dir, *RULES, log=place.log, preexec_fn=lower) as server:
            connection = server.ready()
            populate(connection)
            try:
                connection.call("SAVE")
                raise AssertionError("it can't have been saved")
            except harness.ReplyError as error:
                assert "too large" in str(error), error
            assert connection.call("DBSIZE") == 20_000
            server.kill9()
        assert not os.path.exists(place.image)


def foreign_files_are_named_and_left_alone(options):
    with Place(options) as place:
        # A whole RDB file would be read.
        for start, name, cure in ((b"REDIS0011\xfa\x09redis-ver\x057.2.0", "Redis RDB file", "Put a good file"),
                                  (b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", "append-only file of Redis", "--dbfilename")):
            with open(place.image, "wb") as file:
                file.write(start)
            for more in ([], ["--accept-damaged-image"]):
                with place.server(*RULES, *more) as server:
                    assert server.ended() == 1
                last = place.log_text().strip().splitlines()[-1]
                assert name in last and cure in last and "accept" not in last, last
                assert place.read() == start


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    TESTS = [
        saves_under_load_as_an_ordinary_user,
        an_unwritable_directory_ends_the_start,
        a_server_that_can_not_save_tries_again_at_the_next_ctrl_c,
        signals_and_saves_during_a_restore,
        an_accepted_damaged_image_is_kept,
        a_truncated_image_gives_what_it_has,
        damage_that_leaves_nothing_stops_the_start,
        a_lock_of_another_user_is_heeded,
        a_server_does_not_move_to_the_image_of_another,
        a_limit_of_file_sizes_fails_the_save_and_not_the_server,
        foreign_files_are_named_and_left_alone,
    ]
    harness.run(TESTS, OPTIONS)
