"""The recipe of the container image, as far as it goes without an engine for containers: its words, and the command that it starts.

Building the image takes an engine and Debian's archive, so no test does it. What the image does then is done here: the command of its
ENTRYPOINT runs on another directory and port, and refuses clients from outside until there is a password.
"""

import json
import os
import re
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging", "container", "Containerfile")
KNOWN = {"ARG", "FROM", "COPY", "RUN", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT"}


def instructions():
    """Each instruction with its arguments, continued lines put together."""
    with open(RECIPE, encoding="utf-8") as file:
        lines = "".join(line for line in file if not line.startswith("#")).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in lines.splitlines() if line.strip()]


def entry_point():
    return json.loads(dict(instructions())["ENTRYPOINT"])


def the_words_of_the_recipe(_):
    words = [word for word, _ in instructions()]
    assert set(words) <= KNOWN and words[:2] == ["ARG", "FROM"] and words[-1] == "ENTRYPOINT", words
    parts = dict(instructions())
    assert ":" in parts["FROM"] and "latest" not in parts["FROM"], parts["FROM"]
    assert parts["USER"] not in ("root", "0") and words.index("USER") > words.index("RUN"), parts
    assert parts["VOLUME"] == parts["WORKDIR"] == entry_point()[entry_point().index("--dir") + 1], parts
    # The only file that it takes is what `cargo xtask package` makes.
    assert re.fullmatch(r"quire_\*\.deb /tmp/", parts["COPY"]), parts["COPY"]
    assert parts["EXPOSE"] == "6379" and parts["STOPSIGNAL"] == "SIGTERM", parts


def outside_address():
    """An address of this machine that is not loopback; nothing where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent by this: the system only says from where it would be.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def asked(address, port, *words):
    with socket.create_connection((address, port), 30) as client:
        client.sendall(harness.Raw.encode(*words))
        return client.recv(4096)


def the_command_of_the_image(options):
    words = entry_point()
    assert words[:2] == ["/usr/bin/quire", "serve"], words
    own = words[2:]
    place = own.index("--dir")
    del own[place : place + 2]
    with harness.scratch() as folder, harness.Quire(options.quire, folder, *own) as server:
        inside = server.ready()
        assert asked("127.0.0.1", server.port, "PING").startswith(b"+PONG")
        address = outside_address()
        harness.skip_unless(address, "this machine has no address but loopback")
        # Protected mode tells why and closes, before it is asked.
        told = asked(address, server.port, "PING")
        assert told.startswith(b"-DENIED"), told
        inside.call("CONFIG", "SET", "requirepass", "secret")
        told = asked(address, server.port, "AUTH", "secret")
        assert told.startswith(b"+OK"), told


if __name__ == "__main__":
    harness.run([the_words_of_the_recipe, the_command_of_the_image], harness.arguments(__doc__))
