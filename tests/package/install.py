"""The Debian package: made from what was built, then installed, used, upgraded, removed and purged.

Relies on root, dpkg and an overlay over this system's root directory: nothing of the trial touches the system itself.
"""

import glob
import os
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
exec chroot "$1/root" bash /trial/trial.sh "/trial/$(basename "$3")" "/trial/$(basename "$4")" "$5" "$6"
"""


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


@harness.for_root
def the_path_of_a_new_user(options):
    harness.skip_unless(shutil.which("dpkg-deb") and shutil.which("systemd-analyze"), "takes Debian's dpkg and systemd")
    with harness.scratch() as folder:
        packages = [package(options, folder)]
        packages.append(later(packages[0], folder))
        symbols = glob.glob(f"{folder}/quire-dbgsym_*-1_*.deb")
        tarball = glob.glob(f"{folder}/quire-*-linux.tar.xz")
        assert len(symbols) == 1 and len(tarball) == 1, os.listdir(folder)
        listed = subprocess.run(["tar", "-tf", tarball[0]], capture_output=True, check=True).stdout.decode()
        assert "./usr/bin/quire\n" in listed and "DEBIAN" not in listed, listed
        place = os.path.join(folder, "overlay")
        os.mkdir(place)
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c", IN_OVERLAY, "trial", place]
        words += [os.path.join(HERE, "trial.sh"), *packages, str(harness.free_port()), str(harness.free_port())]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=250, check=False)
        printed = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0 and "# done" in printed, printed
        return f"{os.path.getsize(packages[0]) / 1e6:.1f} MB"


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([the_path_of_a_new_user], OPTIONS)
