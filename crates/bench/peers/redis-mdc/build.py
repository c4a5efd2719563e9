#!/usr/bin/env python3
"""Builds redis-server with checkpoints by libquire: Debian's source package, an edit of a few lines, and quire_rio.c.

    build.py --library LIBQUIRE.SO --header QUIRE.H [--cache DIR] [--source DIR]

The package is fetched by `apt-get source` with lists of sources of its own; nothing of the machine's is changed, and root is not
needed. The edit finds its places by anchors, and says which one is missing when the source is another. Prints the path of the
server in its last line. A build that is there is used again.

The server saves to an MDC checkpoint when `dbfilename` ends in ".mdc", and is redis-server as it was otherwise.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OURS = ["quire_rio.c", "quire_rio.h"]
DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

# (file, anchor, text in its place); each anchor must be there once.
EDITS = [
    ("src/Makefile", "FINAL_LIBS=-lm\n", "FINAL_LIBS=-lm $(QUIRE_LIBS)\n"),
    ("src/Makefile", "REDIS_SERVER_OBJ=", "REDIS_SERVER_OBJ=quire_rio.o "),
    (
        "src/rio.h",
        "    } io;",
        "        struct {\n            void *file;\n            size_t used, at;\n            int may_refer;\n        } mdc;\n    } io;",
    ),
    ("src/rdb.c", '#include "functions.h"\n', '#include "functions.h"\n#include "quire_rio.h"\n'),
    # Strings of the database go by reference.
    (
        "src/rdb.c",
        "    if (server.rdb_compression && len > 20) {",
        "    if (rioMdcRefers(rdb, len)) {\n"
        "        if ((n = rdbSaveLen(rdb, len)) == -1 || !rioMdcRefer(rdb, s, len)) return -1;\n"
        "        return n + len;\n"
        "    }\n"
        "    if (server.rdb_compression && len > 20) {",
    ),
    (
        "src/rdb.c",
        "    /* Save type, key, value */\n",
        "    rioMdcAllowReferences(rdb, val->type);\n    /* Save type, key, value */\n",
    ),
    (
        "src/rdb.c",
        "    if (rdbSaveObject(rdb,val,key,dbid) == -1) return -1;\n",
        "    if (rdbSaveObject(rdb,val,key,dbid) == -1) return -1;\n    rioMdcAllowReferences(rdb, -1);\n",
    ),
    (
        "src/rdb.c",
        "    /* Iterate this DB writing every entry */\n    while((de = dictNext(di)) != NULL) {",
        "    while ((de = rioMdcNext(rdb, di)) != NULL) {",
    ),
    # What was referenced stays in memory until it is dumped.
    (
        "src/rdb.c",
        "if (server.in_fork_child) dismissObject(o, dump_size);",
        "if (server.in_fork_child && !rioIsMdc(rdb)) dismissObject(o, dump_size);",
    ),
    # A checkpoint has checksums of its own.
    (
        "src/rdb.c",
        "    if (server.rdb_checksum)\n        rdb->update_cksum",
        "    if (server.rdb_checksum && !rioIsMdc(rdb))\n        rdb->update_cksum",
    ),
    (
        "src/rdb.c",
        "    if (server.rdb_checksum)\n        rioGenericUpdateChecksum(r",
        "    if (server.rdb_checksum && !rioIsMdc(r))\n        rioGenericUpdateChecksum(r",
    ),
    (
        "src/rdb.c",
        "if (server.rdb_checksum && !server.skip_checksum_validation) {",
        "if (server.rdb_checksum && !server.skip_checksum_validation && !rioIsMdc(rdb)) {",
    ),
    (
        "src/rdb.c",
        "int rdbSave(int req, char *filename, rdbSaveInfo *rsi) {\n",
        "int rdbSave(int req, char *filename, rdbSaveInfo *rsi) {\n"
        "    if (rdbIsMdcName(filename)) return rdbSaveMdc(req, filename, rsi);\n",
    ),
    (
        "src/rdb.c",
        "int rdbLoad(char *filename, rdbSaveInfo *rsi, int rdbflags) {\n",
        "int rdbLoad(char *filename, rdbSaveInfo *rsi, int rdbflags) {\n"
        "    if (rdbIsMdcFile(filename)) return rdbLoadMdc(filename, rsi, rdbflags);\n",
    ),
    # A replica understands RDB files only: it gets its own through a socket.
    ("src/replication.c", '#include "functions.h"\n', '#include "functions.h"\n#include "quire_rio.h"\n'),
    (
        "src/replication.c",
        "socket_target = (server.repl_diskless_sync || ",
        "socket_target = (server.repl_diskless_sync || rdbIsMdcName(server.rdb_filename) || ",
    ),
    (
        "src/replication.c",
        "        else\n            retval = rdbSaveBackground(req,server.rdb_filename,rsiptr);",
        "        else if (rdbIsMdcName(server.rdb_filename)) {\n"
        '            serverLog(LL_WARNING, "A replica that can\'t load from a socket can\'t load a checkpoint either");\n'
        "            retval = C_ERR;\n"
        "        } else\n            retval = rdbSaveBackground(req,server.rdb_filename,rsiptr);",
    ),
]


class Failure(Exception):
    """What could not be done, and what helps."""


def run(command, cwd=None, log=None, env=None):
    """Runs a command; its output is returned, and kept in `log` if that is named."""
    try:
        done = subprocess.run(
            [str(word) for word in command], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except FileNotFoundError:
        raise Failure(f"{command[0]} is not there: install it (Debian packages apt, dpkg-dev, gcc, make)") from None
    if log is not None:
        log.write_text(done.stdout)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise Failure(f"`{' '.join(map(str, command[:4]))} …` failed ({done.returncode}):\n{tail}")
    return done.stdout


def debian_release():
    """The name of the Debian release that this machine runs."""
    text = pathlib.Path("/etc/os-release").read_text()
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = fields.get("VERSION_CODENAME", "").strip('"')
    if fields.get("ID", "").strip('"') != "debian" or not name:
        raise Failure("this is no Debian: name an unpacked source package of redis by --source")
    return name


def mirror():
    """Where this machine gets Debian's packages from."""
    places = sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*")) + [pathlib.Path("/etc/apt/sources.list")]
    for place in places:
        if not place.is_file():
            continue
        for line in place.read_text().splitlines():
            found = re.match(r"(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+/debian)/?(?:\s|$)", line)
            if found:
                return found.group(1)
    return "http://deb.debian.org/debian"


class Apt:
    """apt with lists of sources of its own, in a folder of the cache."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        release, uri = debian_release(), mirror()
        security = uri + "-security"
        parts = [(uri, f"{release} {release}-updates"), (security, f"{release}-security")]
        text = "\n".join(
            f"Types: deb deb-src\nURIs: {uri}\nSuites: {suites}\nComponents: main\nSigned-By: {DEBIAN_KEYS}\n"
            for uri, suites in parts
        )
        (self.folder / "quire.sources").write_text(text)
        settings = {
            "Dir::Etc::sourcelist": self.folder / "quire.sources",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "APT::Sandbox::User": "",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "30",
        }
        self.options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def get(self, *words, cwd=None):
        return run(["apt-get", "-q", *self.options, *words], cwd=cwd)

    def versions(self, package):
        """The versions of a source package that can be fetched, and what they are of."""
        text = run(["apt-cache", *self.options, "showsrc", package])
        return re.findall(r"^Version: (\S+)$", text, re.MULTILINE)


def installed(package):
    """The installed version of a package, if it is installed."""
    try:
        return run(["dpkg-query", "-W", "-f", "${Version}", package]).strip()
    except Failure:
        return ""


def fetch(cache):
    """The unpacked source package, its version, and a folder with jemalloc as Debian builds it. What is in the cache is not fetched."""
    own, jemalloc = installed("redis-server"), cache / "jemalloc"
    if own and (folder(cache, own) / "redis").is_dir() and jemalloc.is_dir():
        return folder(cache, own) / "redis", own, jemalloc
    apt = Apt(cache / "apt")
    apt.get("update", "--error-on=any")
    versions = apt.versions("redis")
    if not versions:
        raise Failure("the mirror has no source package of redis")
    version = own if own in versions else newest_of(versions)
    source = folder(cache, version)
    if not (source / "redis").is_dir():
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        apt.get("--download-only", "source", f"redis={version}", cwd=source)
        description = next(source.glob("*.dsc"))
        run(["dpkg-source", "--no-check", "-x", description.name, "unpacked"], cwd=source)
        (source / "unpacked").rename(source / "redis")
    if not jemalloc.is_dir():
        packages = cache / "jemalloc-packages"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        apt.get("download", "libjemalloc-dev", "libjemalloc2", cwd=packages)
        for package in packages.glob("*.deb"):
            run(["dpkg", "-x", package, packages / "root"])
        (packages / "root").rename(jemalloc)
    return source / "redis", version, jemalloc


def folder(cache, version):
    """Where the source package of a version is unpacked."""
    return cache / f"source-{re.sub(r'[^A-Za-z0-9.]', '-', version)}"


def newest_of(versions):
    """The newest version by Debian's order."""
    newest = versions[0]
    for version in versions[1:]:
        if subprocess.run(["dpkg", "--compare-versions", version, "gt", newest]).returncode == 0:
            newest = version
    return newest


def edit(source):
    """Makes the edit. All anchors are looked for before a file is written."""
    texts, missing = {}, []
    for name, anchor, ours in EDITS:
        path = source / name
        if name not in texts:
            if not path.is_file():
                raise Failure(f"{path} is not there: is {source} an unpacked source package of redis 7.0?")
            texts[name] = path.read_text()
        count = texts[name].count(anchor)
        if count == 1:
            texts[name] = texts[name].replace(anchor, ours)
        else:
            missing.append(f"{name} has {count} times, and not once: {anchor.strip()!r}")
    if missing:
        raise Failure("this source of redis is another than the edit is made for:\n  " + "\n  ".join(missing))
    for name, text in texts.items():
        (source / name).write_text(text)
    for name in OURS:
        shutil.copy(HERE / name, source / "src" / name)


def link(place, to):
    """Makes `place` a symbolic link to `to`, whatever it was."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(to)


def build(arguments):
    """The path of the server."""
    cache = arguments.cache
    cache.mkdir(parents=True, exist_ok=True)
    if arguments.source:
        source, version, jemalloc = arguments.source, "given", cache / "jemalloc"
    else:
        source, version, jemalloc = fetch(cache)
    digest = hashlib.sha256(version.encode() + str(source).encode())
    for name in OURS + ["build.py"]:
        digest.update((HERE / name).read_bytes())
    digest.update(arguments.header.read_bytes())
    place = cache / f"build-{digest.hexdigest()[:16]}"
    library = place / "lib"
    for name in ["libquire.so", "libquire.so.0"]:
        link(library / name, arguments.library)
    server = place / "redis" / "src" / "redis-server"
    done = place / "done"
    if done.is_file() and server.is_file():
        return server
    for older in cache.glob("build-*"):
        if older != place:
            shutil.rmtree(older, ignore_errors=True)
    shutil.rmtree(place / "redis", ignore_errors=True)
    shutil.copytree(source, place / "redis", symlinks=True)
    edit(place / "redis")
    shutil.copy(arguments.header, place / "redis" / "src" / "quire.h")
    found = [path.parent for path in jemalloc.rglob("libjemalloc.so.2")]
    folders = [str(library)] + [str(path) for path in found]
    places = " ".join(f"-L{path} -Wl,-rpath,{path}" for path in folders)
    words = [
        "MALLOC=jemalloc",
        "USE_SYSTEM_JEMALLOC=yes",
        "USE_SYSTEMD=no",
        "BUILD_TLS=no",
        f"CFLAGS=-I{jemalloc}/usr/include",
        f"LDFLAGS={places}",
        "QUIRE_LIBS=-lquire",
    ]
    jobs = f"-j{min(2, os.cpu_count() or 1)}"
    run(["make", jobs, *words, "redis-server"], cwd=place / "redis" / "src", log=place / "build.log")
    done.write_text(version + "\n")
    return server


def default_cache():
    """Where what is fetched and built is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "quire" / "redis-mdc"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libquire.so")
    parser.add_argument("--header", type=pathlib.Path, required=True, help="quire.h")
    parser.add_argument("--cache", type=pathlib.Path, default=default_cache(), help="where packages and builds are kept")
    parser.add_argument("--source", type=pathlib.Path, help="an unpacked source package of redis, instead of fetching it")
    arguments = parser.parse_args()
    for name in ["library", "header", "cache", "source"]:
        given = getattr(arguments, name)
        setattr(arguments, name, given and given.resolve())
    try:
        print(build(arguments))
    except Failure as failure:
        sys.exit(f"redis-mdc: {failure}")


if __name__ == "__main__":
    main()
