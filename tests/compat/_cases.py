"""Directed cases: sequences that random commands hardly find. They lie in cases/*.txt.

A line `== name` begins a case. Each other line is a command in words split at spaces: `''` is an empty word, `\\x20` a
byte, `%1000a` a thousand a's, `{n}` the line's number when it is repeated: `20* ` in front sends a line twenty times.
`2>` in front sends it on the second connection, `sleep 0.1` waits and lets keys expire.
"""

import codecs
import pathlib
import re


def word(text):
    if text == "''":
        return b""
    repeated = re.fullmatch(r"%(\d+)(.+)", text)
    if repeated:
        return word(repeated[2]) * int(repeated[1])
    return codecs.escape_decode(text.encode())[0]


def lines_of(text):
    """The lines, repeated ones as often as they say."""
    for line in text.splitlines():
        repeated = re.match(r"(\d+)\* (.*)", line)
        if repeated:
            yield from (repeated[2].replace("{n}", str(n)) for n in range(int(repeated[1])))
        elif line.strip():
            yield line


def all_cases():
    """(name, [("sleep", (seconds, all words, for some of them are keys)) or ("play", step)])."""
    for path in sorted(pathlib.Path(__file__).with_name("cases").glob("*.txt")):
        for part in re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, _, text = part.partition("\n")
            yield name, steps_of(text)


def steps_of(text):
    steps, seen = [], set()
    for line in lines_of(text):
        words, connection = line.split(), 0
        if words[0] == "2>":
            words, connection = words[1:], 1
        if words[0] == "sleep":
            steps.append(("sleep", (float(words[1]), sorted(seen))))
        else:
            words = [word(text) for text in words]
            seen.update(words[1:])
            steps.append(("play", (connection, [words], False)))
    return steps


# Bytes that are not sent as proper requests; after them the connection is shut.
RAW = [
    b"PING\r\n",
    b"ping\n",
    b"\r\n\r\nPING\r\n",
    b"SET k \"a b\\x41\\n\"\r\nGET k\r\n",
    b"SET k 'a \\' b'\r\nGET k\r\n",
    b"SET k \"unbalanced\r\n",
    b"SET k 'x'y\r\n",
    b"GET\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*-10\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$4\r\nPINGPING\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$536870913\r\n",
    b"*abc\r\n",
    b"*1048577\r\n",
    b"*2147483648\r\n",
    b"*9223372036854775808\r\n",
    b"*\r\n",
    b"*1\r\n$\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
    b"*1\r\n$0\r\n\r\nPING\r\n",
    b"*1\n$4\nPING\n",
    b"PING\r\n*1\r\n$4\r\nPING\r\nPING\r\n",
    b"PING\r\n*1\r\n$x\r\nPING\r\n",
    b"QUIT\r\nPING\r\n",
    b"x" * 70_000,
    b"*1" + b"1" * 70_000,
    b"*1\r\n$" + b"1" * 70_000,
    b"CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\n",
    b"CLIENT REPLY SKIP\r\nPING\r\nPING\r\n",
    b"MULTI\r\nPING\r\nRESET\r\nPING\r\nEXEC\r\n",
    b"Host: x\r\nPING\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PING \"\\xzz\"\r\n",
    b"PING a\tb\r\n",
    b" PING \r\n",
]
