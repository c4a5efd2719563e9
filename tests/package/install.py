"""The Debian package: made from what was built, then installed, used, upgraded, removed and purged, in two systems that are thrown away: an overlay
over this system's root directory, with all tools that it has, and a bare Debian of the essential packages and the few that a user of a server has.

Relies on root, dpkg and namespaces: nothing of the trials touches the system itself. The bare system is put together from the files that dpkg knows of
the packages here, so it takes no network.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
# The namespaces, with all that is mounted and all that runs in them, end with their shell.
IN_OVERLAY = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" none "$1/root"
mount -t proc none "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mkdir "$1/root/trial"
cp "$2" "$3" "$4" "$1/root/trial"
exec chroot "$1/root" bash /trial/trial.sh "/trial/$(basename "$3")" "/trial/$(basename "$4")" "$5" "$6" full
"""
# What a user has beside the essential packages; Quire's package has to name the rest of what it needs.
USERS_PACKAGES = ("redis-tools", "curl")
IN_BARE = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/root"
tar -C / --no-recursion --files-from "$7/files" -cf - | tar -C "$1/root" -xpf -
cd "$1/root"
mkdir -p proc dev tmp trial run root home etc var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers var/log var/cache/ldconfig
chmod 1777 tmp
cp "$7/status" var/lib/dpkg/status
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
mount -t proc none proc
mount --rbind /dev dev
cp "$2" "$3" "$4" trial
chroot . ldconfig
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot . bash /trial/trial.sh "/trial/$(basename "$3")" "/trial/$(basename "$4")" "$5" "$6" bare
"""
DPKG = "/var/lib/dpkg"


def package(options, folder):
    """Makes the packages; the path of the main one."""
    words = ["cargo", "run", "-q", "-p", "xtask", "--", "package", "--from", os.path.dirname(options.quire), "--out", folder]
    # What is tested is the packages' content and not their size.
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, env={**os.environ, "XZ_DEFAULTS": "-0"})
    assert done.returncode == 0, done.stderr.decode()
    (made,) = glob.glob(f"{folder}/quire_*-1_*.deb")
    return made


def later(package, folder):
    """The same package with a later revision."""
    root = os.path.join(folder, "later")
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    control = os.path.join(root, "DEBIAN", "control")
    with open(control, encoding="utf-8") as file:
        text = file.read()
    with open(control, "w", encoding="utf-8") as file:
        file.write(text.replace("-1\n", "-2\n", 1))
    made = package.replace("-1_", "-2_")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, made], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)
    return made


def stanzas():
    """What dpkg knows of the installed packages, by name: their fields, and the text that these are from."""
    found = {}
    with open(f"{DPKG}/status", encoding="utf-8") as file:
        for text in file.read().split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.MULTILINE))
            if fields.get("Status") == "install ok installed":
                found[fields["Package"]] = (fields, text)
    return found


def closure(known, wanted):
    """The packages that `wanted` need, with these, as far as they are installed."""
    providers = {}
    for name, (fields, _) in known.items():
        for provided in re.split(r",\s*", fields.get("Provides", "")):
            providers.setdefault(re.split(r"[ (]", provided)[0], name)
    chosen, waiting = set(), list(wanted)
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        chosen.add(name)
        fields, _ = known[name]
        for need in re.split(r",\s*", ", ".join(fields.get(kind, "") for kind in ("Pre-Depends", "Depends"))):
            # Of alternatives those count that are here.
            names = [re.split(r"[ (:]", other.strip())[0] for other in need.split("|")]
            names = [name if name in known else providers.get(name) for name in names]
            waiting.extend([name for name in names if name][:1])
    return chosen


def files_of(packages):
    """The files of packages, with dpkg's own about them, below the root directory and without its slash."""
    found = {"bin", "sbin", "lib", "lib64", "usr", "etc", "var"}
    for name in packages:
        for path in glob.glob(f"{DPKG}/info/{name}.*") + glob.glob(f"{DPKG}/info/{name}:*"):
            found.add(path[1:])
        (listed,) = glob.glob(f"{DPKG}/info/{name}.list") + glob.glob(f"{DPKG}/info/{name}:*.list")
        with open(listed, encoding="utf-8") as file:
            paths = file.read().split("\n")
        # A name below /bin, which is a link, lies below /usr/bin.
        placed = (os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths if len(path) > 2)
        found.update(path[1:] for path in placed if os.path.lexists(path))
    # Names that the administrator chooses among packages for: awk, for one.
    for link in glob.glob("/etc/alternatives/*"):
        about = f"{DPKG}/alternatives/{os.path.basename(link)}"
        # Those without such a file are manual pages of others.
        if os.path.islink(link) and os.readlink(link)[1:] in found and os.path.exists(about):
            with open(about, encoding="utf-8") as file:
                found.update((link[1:], file.read().split("\n")[1][1:]))
    return sorted(found)


def trial(script, folder, packages, *more):
    """Runs the trial in namespaces of its own; what it printed."""
    place = os.path.join(folder, "place")
    os.mkdir(place)
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c", script, "trial", place]
    words += [os.path.join(HERE, "trial.sh"), *packages, str(harness.free_port()), str(harness.free_port()), *more]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=250, check=False)
    printed = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0 and "# done" in printed, printed
    return printed


MADE = []


def both_packages(options, folder):
    """The package and a later one, which are made once."""
    if not MADE:
        harness.skip_unless(shutil.which("dpkg-deb") and shutil.which("systemd-analyze"), "takes Debian's dpkg and systemd")
        first = package(options, folder)
        MADE.extend([first, later(first, folder)])
    return MADE


def the_path_of_a_new_user(options):
    packages = both_packages(options, options.folder)
    symbols = glob.glob(f"{options.folder}/quire-dbgsym_*-1_*.deb")
    tarball = glob.glob(f"{options.folder}/quire-*-linux.tar.xz")
    assert len(symbols) == 1 and len(tarball) == 1, os.listdir(options.folder)
    listed = subprocess.run(["tar", "-tf", tarball[0]], capture_output=True, check=True).stdout.decode()
    assert "./usr/bin/quire\n" in listed and "DEBIAN" not in listed, listed
    with harness.scratch() as folder:
        trial(IN_OVERLAY, folder, packages)
    return f"{os.path.getsize(packages[0]) / 1e6:.1f} MB"


def the_same_path_on_a_bare_system(options):
    packages = both_packages(options, options.folder)
    known = stanzas()
    essential = [name for name, (fields, _) in known.items() if fields.get("Essential") == "yes"]
    chosen = closure(known, [*essential, *USERS_PACKAGES])
    with harness.scratch() as folder:
        with open(os.path.join(folder, "files"), "w", encoding="utf-8") as file:
            file.writelines(f"{path}\n" for path in files_of(chosen))
        with open(os.path.join(folder, "status"), "w", encoding="utf-8") as file:
            file.writelines(f"{known[name][1].strip()}\n\n" for name in sorted(chosen))
        trial(IN_BARE, folder, packages, folder)
    return f"{len(chosen)} packages of Debian"


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    TESTS = [harness.for_root(test) for test in (the_path_of_a_new_user, the_same_path_on_a_bare_system)]
    with harness.scratch() as OPTIONS.folder:
        harness.run(TESTS, OPTIONS)
