"""The edit of redis (crates/bench/peers/redis-mdc/build.py) finds its places by anchors, or names the one that is missing.

Relies on no source of redis, which takes a network: the anchors themselves stand for it. That Debian's source has them is seen when it
is built, by `quire bench checkpoint` or by hand.
"""

import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import harness

PLACE = ROOT / "crates" / "bench" / "peers" / "redis-mdc" / "build.py"


def script():
    spec = importlib.util.spec_from_file_location("build", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up_source(build, directory):
    """A source that has the anchors and nothing else."""
    texts = {}
    for name, anchor, _ in build.EDITS:
        texts[name] = texts.get(name, "first line\n") + anchor + "\nbetween\n"
    for name, text in texts.items():
        path = pathlib.Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return texts


def the_edit_puts_all_of_our_lines_in(_):
    build = script()
    with harness.scratch() as directory:
        texts = made_up_source(build, directory)
        build.edit(pathlib.Path(directory))
        for name, anchor, ours in build.EDITS:
            text = (pathlib.Path(directory) / name).read_text()
            assert text.count(ours) == 1, (name, ours)
        for name in texts:
            text = (pathlib.Path(directory) / name).read_text()
            assert text.startswith("first line\n") and text.endswith("\nbetween\n"), name
        assert all((pathlib.Path(directory) / "src" / name).is_file() for name in build.OURS)


def another_source_is_refused_by_the_anchor_that_it_lacks_and_nothing_is_written(_):
    build = script()
    for lacking, anchor, _ in build.EDITS:
        for change in (lambda text: text.replace(anchor, "another\n"), lambda text: text + anchor):
            with harness.scratch() as directory:
                texts = made_up_source(build, directory)
                place = pathlib.Path(directory) / lacking
                texts[lacking] = change(texts[lacking])
                place.write_text(texts[lacking])
                try:
                    build.edit(pathlib.Path(directory))
                    raise AssertionError("another source was edited")
                except build.Failure as failure:
                    assert lacking in str(failure) and repr(anchor.strip()) in str(failure), failure
                for name, text in texts.items():
                    assert (pathlib.Path(directory) / name).read_text() == text, name
    with harness.scratch() as directory:
        try:
            build.edit(pathlib.Path(directory))
            raise AssertionError("an empty directory was edited")
        except build.Failure as failure:
            assert "Makefile" in str(failure), failure


TESTS = [
    the_edit_puts_all_of_our_lines_in,
    another_source_is_refused_by_the_anchor_that_it_lacks_and_nothing_is_written,
]

if __name__ == "__main__":
    harness.run(TESTS, harness.arguments(__doc__.splitlines()[0]))
