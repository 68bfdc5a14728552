"""`eval.report.page`: the page stands alone, escapes what it is given, and its tables sort in a browser."""

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from eval.report import Table, page

TABLE = Table(
    ["name", "score", "n"],
    [["b <x>", "70.50 ∗", "1,200"], ["a", "–", "30"], ["c & d", "−3.25", "4"]],
    caption="Scores & counts",
    notes=["a <note>"],
    groups=[0, 0, 1],
    best=frozenset({(0, 1)}),
)
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Tree(HTMLParser):
    """Checks that tags are closed in order, and keeps attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_words_that_all_rows_share_stand_above_the_table():
    table = Table(["pooling", "k", "index", "score"], [["mean", "8", "x", "1"], ["mean", "4", "x", "2"]], 3, "Scores.")
    shown = table.html()
    assert "<figcaption>Scores. All rows: pooling mean, index x.</figcaption>" in shown
    assert re.findall(r"<t[dh](?: [^>]*)?>(?:<button[^>]*>)?([^<]*)<", shown) == ["k", "score", "8", "1", "4", "2"]
    assert "all rows: pooling mean, index x" in table.text()
    alone = Table(["pooling", "score"], [["mean", "1"]], 1).html()
    assert "<td>mean</td>" in alone


@pytest.fixture
def written(tmp_path):
    png = tmp_path / "plot.png"
    png.write_bytes(b"\x89PNG made up")
    sections = [
        page.section("Scores", page.tables(TABLE, None), page.picture(png, 'A "plot"')),
        page.section("Empty", page.tables(None), page.facts({"nothing": None})),
        page.section("Text", page.folded("more", page.verbatim("1 < 2"))),
        page.section("Facts", page.facts({"a": {"b": 0.5, "c": [1, 2]}, "d": "<script>alert(1)</script>"})),
    ]
    path = page.write_page(tmp_path / "report.html", "A <title>", ["lead & more"], sections, ["watch <out>"])
    return path, path.read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_loads_nothing(written):
    tree = Tree(written[1])
    assert tree.all("html") == [{"lang": "en"}]
    assert not tree.all("link")
    assert tree.all("script") == [{}]
    assert [image["src"].partition(",")[0] for image in tree.all("img")] == ["data:image/png;base64"]
    assert not re.search(r"https?://|url\(|@import|fetch\(", written[1])
    assert any("default-src 'none'" in meta.get("content", "") for meta in tree.all("meta"))
    assert any("width=device-width" in meta.get("content", "") for meta in tree.all("meta"))


def test_the_picture_is_inside(written):
    image = Tree(written[1]).all("img")[0]
    assert base64.b64decode(image["src"].partition(",")[2]) == b"\x89PNG made up"
    assert image["alt"] == 'A "plot"'


def test_text_is_escaped(written):
    for escaped in ("A &lt;title&gt;", "lead &amp; more", "watch &lt;out&gt;", "1 &lt; 2", "&lt;script&gt;alert(1)"):
        assert escaped in written[1]
    assert "<script>alert" not in written[1]


def test_what_is_empty_has_no_section(written):
    assert "<h2>Empty</h2>" not in written[1]
    assert page.folded("more") == page.section("head", "") == page.facts({"x": None, "y": ""}) == ""


def test_facts_inside_others_have_a_path(written):
    assert "<dt>a.b</dt><dd>0.5</dd>" in written[1]
    assert "<dt>a.c</dt><dd>1, 2</dd>" in written[1]


def test_a_table_marks_numbers_the_best_and_groups():
    text = TABLE.html()
    assert '<td class="number best">70.50 ∗</td>' in text
    assert text.count('<tr class="rule">') == 1
    assert "<td>b &lt;x&gt;</td>" in text
    assert "<figcaption>Scores &amp; counts</figcaption>" in text
    assert '<p class="note">a &lt;note&gt;</p>' in text
    assert text.count("<button") == 3
    Tree(text)


def test_rows_that_belong_together_are_not_sorted_apart():
    text = Table(["setting", "", "x"], [["a", "published", "1"], ["", "ours", "2"]], 2).html()
    assert "<button" not in text
    assert "sortable" not in text


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CLICKS = """<script>
const rows = () => [...document.querySelectorAll("tbody tr")].map((r) => r.cells[0].textContent).join(" | ");
const seen = [rows()];
for (const column of COLUMNS) {
  document.querySelectorAll("th button")[column].click();
  seen.push(rows());
}
document.title = seen.join(" ; ");
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium or google-chrome on the PATH")
@pytest.mark.parametrize(
    ("columns", "orders"),
    [
        ([1, 1, 1], ["b <x> | c & d | a", "c & d | b <x> | a", "b <x> | a | c & d"]),
        ([0, 0, 0], ["a | b <x> | c & d", "c & d | b <x> | a", "b <x> | a | c & d"]),
        ([2, 0], ["b <x> | a | c & d", "a | b <x> | c & d"]),
    ],
)
def test_a_click_sorts_in_a_browser(written, tmp_path, columns, orders):
    copy = tmp_path / "clicked.html"
    copy.write_text(written[1].replace("</body>", CLICKS.replace("COLUMNS", str(columns))), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    found = subprocess.run([BROWSER, *options, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    import html

    title = html.unescape(re.search("<title>(.*?)</title>", found.stdout).group(1))
    assert title.split(" ; ") == ["b <x> | a | c & d", *orders]
