"""The page of results in a browser: as wide as the screen, on a phone too, with no name over another and no request to the network.

Relies on headless Chromium (Debian's chromium, which `cargo xtask test` installs) to lay the page out; without it these tests are skipped, and the tests
of the page's text in crates/bench/src/page are all there is. Nothing is compared by pixels.
"""

import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "results")
LIMIT_S = 120
PHONE_PX, DESK_PX = 360, 1280
# A frame may read the page that it holds only under this flag; the page itself has no script.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--hide-scrollbars"]
FRAME = """<!doctype html><body style="margin:0"><iframe id="page" src="index.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<pre id="found"></pre><script>
window.onload = () => {
  const page = document.getElementById("page").contentDocument, found = {plots: 0, figures: 0, outside: [], over: []};
  found.wide = page.documentElement.scrollWidth;
  for (const card of page.querySelectorAll("article")) {
    found.figures += 1;
    const own = card.getBoundingClientRect();
    for (const part of card.querySelectorAll("*")) {
      const box = part.getBoundingClientRect();
      if (box.width && (box.left < own.left - 1 || box.right > own.right + 1)) found.outside.push(part.textContent.slice(0, 60));
    }
  }
  for (const plot of page.querySelectorAll(".plot svg")) {
    found.plots += 1;
    const texts = [...plot.querySelectorAll("text")].map(text => [text.textContent.trim(), text.getBoundingClientRect()]);
    texts.forEach(([name, box], index) => texts.slice(index + 1).forEach(([other, next]) => {
      const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
      const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
      if (across > 1 && down > 2) found.over.push(plot.getAttribute("aria-label") + ": " + name + " and " + other);
    }));
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>"""


def browser():
    program = shutil.which("chromium")
    harness.skip_unless(program, "takes chromium (apt-get install chromium)")
    return program


def made(options, folder):
    """The page, in a folder of its own."""
    words = [options.quire, "report", "--from", RESULTS, "--out", folder]
    printed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    assert "index.html" in printed, printed
    return os.path.join(folder, "index.html")


def laid_out(options, width):
    """What a browser makes of the page at this width."""
    program = browser()
    with harness.scratch() as folder:
        made(options, folder)
        frame = os.path.join(folder, "frame.html")
        with open(frame, "w", encoding="utf-8") as file:
            file.write(FRAME.replace("WIDTH", str(width)))
        words = [program, *FLAGS, f"--user-data-dir={folder}/browser", "--dump-dom", f"file://{frame}"]
        dom = subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert match and match[1], f"the browser measured nothing:\n{dom[-500:]}"
    return json.loads(match[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def a_phone_shows_the_page_without_scrolling_sideways(options):
    found = laid_out(options, PHONE_PX)
    assert found["wide"] <= PHONE_PX, f"{found['wide']} pixels wide"
    assert found["figures"] > 50 and not found["outside"], found["outside"][:5]


def a_desk_shows_every_plot_with_no_name_over_another(options):
    found = laid_out(options, DESK_PX)
    assert found["wide"] <= DESK_PX, f"{found['wide']} pixels wide"
    assert found["plots"] >= 20 and not found["over"], found["over"][:5]
    return f"{found['figures']} figures, {found['plots']} plots"


def the_page_asks_nothing_of_the_network_and_runs_nothing(options):
    with harness.scratch() as folder:
        with open(made(options, folder), encoding="utf-8") as file:
            page = file.read()
    assert "default-src 'none'" in page
    for part in ("<script", "<link", "<img", "src=", "@import", "url("):
        assert part not in page, part


TESTS = [
    a_phone_shows_the_page_without_scrolling_sideways,
    a_desk_shows_every_plot_with_no_name_over_another,
    the_page_asks_nothing_of_the_network_and_runs_nothing,
]

if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run(TESTS, OPTIONS)
