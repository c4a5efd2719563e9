"""Every command that a document names exists, with the flags that stand behind it, wherever it is named: in prose, in a block that is not run, in
a comment of an example.

Relies on the commands' own help (`quire … --help`, `cargo xtask … --help`). What a reader is to type is run by commands.py.
"""

import functools
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Sections of the past name commands of the past.
LEFT_OUT = ("CHANGELOG.md",)
SKIPPED_FOLDERS = ("target", "corpus", "shared")
SPAN = re.compile(r"`([^`\n]+)`")
# Variables before a command belong to it.
VARIABLES = r"(?:[A-Z_]+=\S+ )*"
COMMAND = re.compile(rf"^(?:\$ )?{VARIABLES}(quire|cargo xtask)((?: .*)?)$")
# Where another command begins.
END = re.compile(r"\s(?:&|&&|\|\||\||;|>|2>|<|#)(?:\s|$)|[;)]")
WORD = re.compile(r"[a-z][a-z-]*$")
FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def documents():
    """The paths of all documents, below the repository."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name.endswith(".md") and path not in LEFT_OUT:
                yield path


def mentions(text):
    """Line, program and words of each command that the text names."""
    found, is_block = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_block = not is_block
            continue
        for piece in [line.strip()] if is_block else SPAN.findall(line):
            match = COMMAND.match(piece)
            if match:
                found.append((number, match[1], END.split(match[2] + " ")[0].split()))
    return found


class Helps:
    """The help of every command, asked for once."""

    def __init__(self, quire):
        self.programs = {"quire": [quire], "cargo xtask": ["cargo", "run", "-q", "-p", "xtask", "--"]}

    @functools.cache
    def text(self, program, *commands):
        """The help of a command; nothing if there is no such command."""
        words = [*self.programs[program], *commands, "--help"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
        return done.stdout.decode() if done.returncode == 0 else None

    @functools.cache
    def subcommands(self, program, *commands):
        """The commands that a help lists."""
        part = self.text(program, *commands).partition("\nCommands:\n")[2].partition("\n\n")[0]
        return {line.split()[0] for line in part.splitlines() if re.match(r"  [a-z]", line)}

    def fault(self, program, words):
        """What is wrong with the command; nothing if it is right."""
        if program == "cargo xtask" and words[:1] == ["bench"]:
            # It hands its words on.
            program = "quire"
        path = []
        for word in words:
            if not WORD.match(word) or word == "help" or not self.subcommands(program, *path):
                break
            if word not in self.subcommands(program, *path):
                return f"{program} {' '.join(path)} has no command {word}".replace("  ", " ")
            path.append(word)
        text = self.text(program, *path)
        assert text, f"{program} {' '.join(path)} --help fails"
        known = set(FLAG.findall(text))
        for flag in (match[0] for match in map(FLAG.match, words) if match):
            if flag not in known:
                return f"{' '.join([program, *path])} has no {flag}"
        return None


def commands_that_documents_name(options):
    helps, count, faults = Helps(options.quire), 0, []
    for page in documents():
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for line, program, words in mentions(file.read()):
                count += 1
                fault = helps.fault(program, words)
                if fault:
                    faults.append(f"{page}:{line}: {fault}")
    assert not faults, "\n".join(faults)
    assert count > 150, f"only {count} commands were found"
    return f"{count} commands"


def variables_that_documents_name(options):
    """A variable QUIRE_… is a flag's, or stands in a source."""
    helps = Helps(options.quire)
    known = {f"QUIRE_{flag[2:].replace('-', '_').upper()}" for flag in FLAG.findall(helps.text("quire", "serve"))}
    for place in ("crates", "tests"):
        for folder, folders, files in os.walk(os.path.join(ROOT, place)):
            folders[:] = [name for name in folders if name != "target"]
            for name in files:
                if name.endswith((".rs", ".h", ".c", ".py")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        known.update(re.findall(r"\bQUIRE_[A-Z0-9_]+", file.read()))
    faults = []
    for page in documents():
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                unknown = set(re.findall(r"\bQUIRE_[A-Z0-9_]+\b(?!…)", line)) - known
                faults.extend(f"{page}:{number}: nothing reads {name}" for name in sorted(unknown))
    assert not faults, "\n".join(faults)


def functions_of_c_that_documents_name(_):
    with open(os.path.join(ROOT, "crates", "capi", "include", "quire.h"), encoding="utf-8") as file:
        known = set(re.findall(r"\b(\w+)\(", file.read()))
    found, faults = set(), []
    for page in documents():
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                named = set(re.findall(r"\b((?:quire|mdc)_\w+)\(", line))
                found |= named
                faults.extend(f"{page}:{number}: quire.h has no {name}" for name in sorted(named - known))
    assert not faults, "\n".join(faults)
    assert len(found) > 15, sorted(found)


def the_finder_of_commands_finds_them(_):
    text = "`quire top` and `x quire`\n```\n$ A=1 quire serve --port 7 > log 2>&1 &\ncargo xtask test   # all\n```\n`QUIRE_A=1 quire bench server --quick` `quiresome`"
    assert mentions(text) == [
        (1, "quire", ["top"]),
        (3, "quire", ["serve", "--port", "7"]),
        (4, "cargo xtask", ["test"]),
        (6, "quire", ["bench", "server", "--quick"]),
    ], mentions(text)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([the_finder_of_commands_finds_them, commands_that_documents_name, variables_that_documents_name, functions_of_c_that_documents_name], OPTIONS)
