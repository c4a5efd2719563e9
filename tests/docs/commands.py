"""Every command of the documents, run as a reader would run it.

A block that begins with ```console holds commands behind "$ " and what they print; "…" stands for anything. What is typed to SQLite's shell stands
behind "sqlite> ", before all that it prints. The blocks of a page are one
session of bash in an empty folder. Ports of the pages stand for free ones, so that no server of this machine is disturbed.

Relies on Debian's redis-server, redis-tools, openssl, sqlite3 and, where a page mounts, FUSE. Libraries are found as after an installation:
they lie beside the binary, and LD_LIBRARY_PATH says so.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FENCE = "```"
# Ports that the pages name. The first is the one that servers and clients take unless told otherwise.
PORTS = re.compile(r"\b(6379|6380|700[0-3])\b")
# What bash says of a process that a page kills.
KILLED = re.compile(r"^.*bash: line \d+: +\d+ Killed .*\n?", re.MULTILINE)
LIBRARY = re.compile(r"\blibquire_\w+\.so\b")
# Of SQLite's shell.
SHELL_PROMPT = "sqlite> "
LIMIT_S = 120


def pages():
    """The documents that have such blocks."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in ("target", "corpus", "shared"))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(".md"):
                with open(path, encoding="utf-8") as file:
                    if any(line.startswith(FENCE + "console") for line in file):
                        found.append(os.path.relpath(path, ROOT))
    return found


def with_input(command, typed):
    """The command, which reads lines that are typed to it."""
    if not typed:
        return command
    return "\n".join([f"{command} <<'TYPED'", *typed, "TYPED"])


def commands(text):
    """Line, command and expected lines of each command in the page's blocks."""
    found, is_block = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(FENCE):
            is_block = line == FENCE + "console"
        elif is_block and line.startswith("$ "):
            found.append((number, line[2:], [], []))
        elif is_block and line.startswith(SHELL_PROMPT):
            assert found and not found[-1][2], f"line {number}: input without a command, or behind its output"
            found[-1][3].append(line.removeprefix(SHELL_PROMPT))
        elif is_block:
            assert found, f"line {number}: output before the first command"
            found[-1][2].append(line)
    return [(number, with_input(command, typed), expected) for number, command, expected, typed in found]


def matches(expected, printed):
    """Whether what was printed is what the page shows."""
    lines = "\n".join(expected).strip("\n").split("\n")
    pattern = ""
    for line in lines:
        # A line of its own stands for any number of lines.
        in_line = r".*?".join(re.escape(part) for part in line.split("…")) + r"\n"
        pattern += r"(?:.*\n)*?" if line == "…" else in_line
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


def libraries(quire):
    """Where the libraries of this build lie."""
    return os.path.dirname(os.path.realpath(quire))


class Session:
    """A bash in which the commands of a page run one after the other."""

    def __init__(self, quire, folder):
        self.folder = os.path.join(folder, "home")
        self.aside = os.path.join(folder, "aside")
        for path in (self.folder, self.aside):
            os.mkdir(path)
        self.ports = {}
        port = self.replaced("6379")
        os.symlink(quire, os.path.join(self.aside, "quire"))
        for name in ("redis-cli", "redis-benchmark"):
            with open(os.path.join(self.aside, name), "w", encoding="ascii") as file:
                file.write(f'#!/bin/sh\ncase " $* " in *" -p "*) exec /usr/bin/{name} "$@";; esac\n')
                file.write(f'exec /usr/bin/{name} -p {port} "$@"\n')
            os.chmod(file.name, 0o755)
        reader, self.writer = os.pipe()
        self.done = os.fdopen(reader, "rb", buffering=0)
        environment = {
            "PATH": f"{self.aside}:{os.environ['PATH']}",
            "HOME": self.folder,
            "LC_ALL": "C.UTF-8",
            "QUIRE_PORT": port,
            "LD_LIBRARY_PATH": libraries(quire),
        }
        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self.writer],
            start_new_session=True,
        )
        self.count = 0

    def replaced(self, text):
        """The text with free ports for those of the pages."""

        def free(match):
            return self.ports.setdefault(match[0], str(harness.free_port()))

        return PORTS.sub(free, text)

    def run(self, command):
        """The exit code of a command and what it printed."""
        self.count += 1
        out = os.path.join(self.aside, f"out-{self.count}")
        script = f"{{ {command}\n}} < /dev/null > {out} 2>&1 {self.writer}>&-\necho $? >&{self.writer}\n"
        self.bash.stdin.write(script.encode())
        self.bash.stdin.flush()
        code = self.code(command)
        if command.endswith("&"):
            self.wait_ready(command)
        with open(out, encoding="utf-8", errors="replace") as file:
            return code, KILLED.sub("", file.read().replace("\r\n", "\n"))

    def code(self, command):
        line = b""
        end = time.monotonic() + LIMIT_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.done], [], [], 0.5)
            assert self.bash.poll() is None, f"bash ended at: {command}"
            assert time.monotonic() < end, f"not done after {LIMIT_S} s: {command}"
            if ready:
                line += os.read(self.done.fileno(), 100)
        return int(line)

    def wait_ready(self, command):
        """Waits until the server that the command starts answers: a reader types the next command later than a test."""
        port = re.search(r"--port (\d+)", command)
        if port and port[1] == "0":
            # It speaks TLS only, and the page waits for it itself.
            return
        port = int(port[1]) if port else int(self.replaced("6379"))
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError, harness.ReplyError):
                connection = harness.Raw(port)
                connection.call("PING")
                connection.close()
                return
            time.sleep(0.01)
        raise AssertionError(f"no server answers after {LIMIT_S} s: {command}")

    def close(self):
        # A page that ended early has left its mount, whose daemon is in no group of ours.
        with open("/proc/self/mounts", encoding="utf-8") as file:
            left = [line.split()[1] for line in file if line.split()[1].startswith(self.folder + "/")]
        for path in left:
            subprocess.run([os.path.join(self.aside, "quire"), "unmount", "--lazy", path], check=False, timeout=LIMIT_S)
        # The group is bash's own: it holds what the page has started and nothing else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGKILL)
        self.bash.wait()
        self.done.close()
        os.close(self.writer)


def run_page(page, options):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        listed = commands(file.read())
    assert listed, "a block has no command"
    needs_fuse = any("quire mount" in command for _, command, _ in listed)
    harness.skip_unless(not needs_fuse or os.access("/dev/fuse", os.W_OK), "takes FUSE")
    needs_heap = any("QUIRE_HEAP" in command for _, command, _ in listed)
    harness.skip_unless(not needs_heap or os.geteuid() == 0, "a heap on a file takes root")
    for name in {name for _, command, _ in listed for name in LIBRARY.findall(command)}:
        harness.skip_unless(os.path.exists(os.path.join(libraries(options.quire), name)), f"takes {name} beside the binary")
    with harness.scratch() as folder:
        session = Session(options.quire, folder)
        try:
            for line, command, expected in listed:
                code, printed = session.run(session.replaced(command))
                shown = f"{page}:{line}: {command}"
                assert code == 0, f"{shown}\nended with {code} and printed\n{printed}"
                expected = [session.replaced(line) for line in expected]
                wanted = "\n".join(expected)
                assert not expected or matches(expected, printed), f"{shown}\nprinted\n{printed}\nand not\n{wanted}"
        finally:
            session.close()
    return f"{len(listed)} commands"


def the_comparison_of_outputs_knows_what_differs(_):
    assert matches(["…", "b"], "b") and matches(["a", "…", "d"], "a\nb\nc\nd") and matches(["ok: …"], "ok: 1\n")
    assert not matches(["a"], "a\nb") and not matches(["b"], "a\nb") and not matches(["a …"], "b c")
    page = f"{FENCE}console\n$ one\nout\n$ two\n{FENCE}\n{FENCE}sh\n$ three\n{FENCE}\n"
    assert commands(page) == [(2, "one", ["out"]), (4, "two", [])]
    page = f"{FENCE}console\n$ sqlite3\nsqlite> .open x\nsqlite> SELECT 1;\n1\n{FENCE}\n"
    assert commands(page) == [(2, "sqlite3 <<'TYPED'\n.open x\nSELECT 1;\nTYPED", ["1"])]


def tests():
    found = [the_comparison_of_outputs_knows_what_differs]
    for page in pages():

        def test(options, page=page):
            return run_page(page, options)

        test.__name__ = page
        found.append(test)
    assert len(found) > 3, "the pages with commands were not found"
    return found


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run(tests(), OPTIONS)
