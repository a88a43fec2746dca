"""Attacks on the report, the crate, the figures and the terminal by the texts that they show."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from lxml import html as dom
from markdown_it import MarkdownIt

from sage.cli.console import Terminal
from sage.core.files import read_json, write_json
from sage.core.printable import one_line
from sage.report.build import _render
from sage.report.collect import Page, collect_page
from sage.report.crate import write_crate
from sage.report.facts import to_html, to_markdown
from sage.report.inert import data_uri, html_text, markdown_text
from sage.run.folder import RunFolder
from tests.adversary.hostile import EVIL, NASTY, hostile_run, poisoned
from tests.end_to_end.harness import sage

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
nasty_texts = (
    st.sampled_from(NASTY) | st.text(max_size=200) | st.text("<>&\"'=[]{}|$\\\n", max_size=40)
)
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=120, deadline=None)


@lru_cache(maxsize=1)
def page() -> Page:
    return collect_page(RunFolder(hostile_run()))


@lru_cache(maxsize=2)
def elements(kind: str) -> Counter[str]:
    """The elements of a page whose texts are harmless."""
    return _elements(_build(kind, poisoned(page(), lambda old: f"plain words {old}")))


def _build(kind: str, content: Page) -> str:
    rendered = _render(content, f"report.{kind}.j2")
    if kind == "html":
        return to_html(rendered)
    return (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(to_markdown(rendered))
    )


LEADS_TO = re.compile(
    r"#.*|data:text/csv;base64,[A-Za-z0-9+/=]*|hypotheses/h\d+/(?:results/figures|fields)/[\w.-]+"
    r"|fields/h\d+/\d+/(?:high|low)",
    re.DOTALL,
)
"""Places of the page, its own data, and files of its run: no link leads a reader elsewhere."""


def _elements(text: str) -> Counter[str]:
    tree = dom.document_fromstring(text.encode(errors="backslashreplace"))
    for item in tree.iter(etree.Element):
        for name, value in item.attrib.items():
            assert not name.startswith("on"), (item.tag, name)
            assert name != "style"
            if name == "href":
                assert LEADS_TO.fullmatch(value), value
            if name == "src":
                assert value.startswith(("data:image/svg+xml;base64,", "data:image/png;base64,"))
    # A [[key]] that an attack writes into a sentence becomes a number, and no other element.
    return Counter(item.tag for item in tree.iter(etree.Element) if item.tag != "data")


def _scatter(texts: Sequence[str], salt: str = "") -> Callable[[str], str]:
    """Put one of the texts before each field, the same before the same words."""
    return lambda old: f"{texts[zlib.crc32(f'{salt}{old}'.encode()) % len(texts)]}{old}"


def _disturbs(kind: str, attack: Callable[[str], str]) -> bool:
    try:
        return _elements(_build(kind, poisoned(page(), attack))) != elements(kind)
    except AssertionError:
        return True


@pytest.mark.parametrize("kind", ["html", "md"])
def test_no_text_adds_an_element_to_the_page_or_takes_one_away(kind: str) -> None:
    """All texts in every field, and each text alone in many fields."""
    joined = " ".join(text for text in NASTY if len(text) < 1000)
    attacks = [lambda old: f"{joined}{old}", _scatter(NASTY), _scatter(NASTY, "again")]
    if any(_disturbs(kind, attack) for attack in attacks):
        alone = [text for text in NASTY if _disturbs(kind, lambda old, text=text: f"{text}{old}")]
        pytest.fail(f"the page was changed; by these texts alone: {alone}")


@settings(few, max_examples=4)
@given(texts=st.lists(nasty_texts, min_size=5, max_size=15))
def test_any_text_builds_both_reports(texts: list[str]) -> None:
    for kind in ("html", "md"):
        assert not _disturbs(kind, _scatter([f"x{text}" for text in texts]))


@many
@given(text=nasty_texts)
def test_escaped_text_is_read_back_as_itself(text: str) -> None:
    shown = dom.fromstring(f"<p title='{html_text(text)}'>.{html_text(text)}</p>")
    assert one_line(shown.text_content()[1:]) == one_line(text)
    assert one_line(shown.get("title")) == one_line(text)
    rendered = MarkdownIt().enable(["table", "strikethrough"]).render(f"x {markdown_text(text)}")
    assert re.sub(r"</?p>", "", rendered).count("<") == 0
    assert one_line(html.unescape(rendered.strip()[3:-4])) == one_line(f"x {text}")


def test_honest_labels_are_shown_and_figures_are_whole_svg() -> None:
    for name in ("report.html", "report.md"):
        assert "Smoking (ongoing = 1)" in html.unescape((hostile_run() / name).read_text())
    figures = sorted(hostile_run().rglob("*.svg"))
    assert figures
    for path in figures:
        assert etree.parse(path).getroot().tag.endswith("svg")


def test_the_marks_of_a_number_cannot_be_forged() -> None:
    text = "\ue000h1.primary.p\ue0040.0001\ue001"
    content = poisoned(page(), lambda old: f"{text}{old}")
    assert not re.search(r"<data[^>]*>0\.0001</data>", _build("html", content))


@few
@given(text=nasty_texts)
def test_any_text_can_be_kept_and_described(text: str, tmp_path_factory: Any) -> None:
    root = tmp_path_factory.mktemp("crate")
    write_json(root / "outputs" / "one.json", {"text": text})
    assert read_json(root / "outputs" / "one.json") == {"text": text}
    manifest = RunFolder(hostile_run()).manifest().model_copy(update={"prompt": text})
    crate = json.loads(write_crate(root, manifest).read_text())
    assert crate["@graph"]


@many
@given(text=nasty_texts)
def test_a_terminal_prints_any_text_and_obeys_none(text: str) -> None:
    from rich.panel import Panel
    from rich.table import Table

    printed = io.StringIO()
    terminal = Terminal(file=printed, force_terminal=True, width=100, highlight=False)
    table = Table("name")
    table.add_row(text)
    for shown in (f"[bold]h1[/] {text}", table, Panel(text), f"  {text} [dim](x)[/]"):
        terminal.print(shown)
    sequences = re.findall(r"\x1b[^m]*m", printed.getvalue())
    assert not [sequence for sequence in sequences if not re.fullmatch(r"\x1b\[[0-9;]*m", sequence)]
    assert "\x1b]" not in printed.getvalue()
    assert not re.search("[\x00-\x08\x0e-\x1a\x7f-\x9f\u202a-\u202e]", printed.getvalue())


@settings(few, max_examples=5)
@given(texts=st.lists(nasty_texts, min_size=6, max_size=6))
def test_any_text_can_stand_in_a_figure(texts: list[str], tmp_path_factory: Any) -> None:
    from validation.figures.style import canvas, clean_text, heading, save

    path = tmp_path_factory.mktemp("figure") / "x.svg"
    with canvas(4, 3) as figure:
        heading(figure, texts[0], texts[1], simulated=True, left=0.02)
        axes = figure.add_axes((0.1, 0.1, 0.8, 0.6))
        axes.plot([0, 1], [0, 1], label=texts[2])
        axes.set_xlabel(texts[3])
        axes.set_xticks([0, 1], [clean_text(texts[4]), clean_text(texts[5])])
        axes.legend()
        save(figure, path, title=texts[0], description=texts[1])
    tree = etree.parse(path)
    assert not tree.xpath("//*[local-name()='script' or local-name()='foreignObject']")


def test_a_prompt_that_is_no_unicode_is_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    ended = sage(
        "run", "TLS \udcff\udc80 \x1b[31m", "--cohort", "nowhere", "--out", "x", cwd=tmp_path
    )
    assert ended.code == 2
    assert "Traceback" not in ended.err


# What runs inside the page is told by what it does to the page around it.
HARNESS = """<!doctype html><title>quiet</title><iframe id=f width=1200 height=900></iframe>
<pre id=o></pre><script>
const frame = document.getElementById("f"), found = {}, names = NAMES;
frame.onload = () => setTimeout(() => {
  const inner = frame.contentDocument, said = {title: document.title};
  document.title = "quiet";
  said.at = inner.location.href;
  said.badges = [...inner.querySelectorAll(".verdict")].map(badge => {
    badge.scrollIntoView();
    const box = badge.getBoundingClientRect();
    const top = inner.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return {seen: top === badge, words: badge.innerText.trim(), wide: box.width,
            right: box.right <= 1200};
  });
  said.images = [...inner.images].map(one => one.naturalWidth);
  found[names.shift()] = said;
  if (names.length) frame.src = names[0] + ".html";
  else document.getElementById("o").textContent = JSON.stringify(found);
}, 400);
frame.src = names[0] + ".html";
</script>"""


def look(folder: Path, pages: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What a browser makes of each page: where it ended, which badges a reader sees."""
    assert CHROMIUM
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, errors="backslashreplace")
    (folder / "harness.html").write_text(HARNESS.replace("NAMES", json.dumps(list(pages))))
    found = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
         "--allow-file-access-from-files", "--window-size=1300,1000",
         f"--user-data-dir={folder / 'profile'}", "--dump-dom",
         (folder / "harness.html").as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    told = re.search(r"<pre id=\"o\">(.*?)</pre>", found.stdout, re.DOTALL)
    assert told, found.stdout[-2000:]
    said: dict[str, dict[str, Any]] = json.loads(html.unescape(told[1]))
    return said


ANCHOR = '<h2 id="appendix">'
INJECTED = {
    "style": "<style>.verdict{display:none!important}</style>",
    "script": "<script>parent.document.title='OWNED'</script>",
    "handler": "<img src=x onerror=\"parent.document.title='OWNED'\">",
    "overlay": "<div style='position:fixed;inset:0;background:#fff;z-index:9'>supported</div>",
    "base": "<base href='http://evil.example/'><link rel=stylesheet href='http://evil.example/'>",
    "frame": "<iframe src='javascript:parent.parent.document.title=1'></iframe>"
    "<object data='data:text/html,x'></object>",
    "svg": '<svg onload="parent.document.title=1"><style>.verdict{opacity:0}</style></svg>',
}
"""The policy holds against these even where escaping would have failed."""
ACTIVE = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='90' height='90'"
    " onload=\"top.document.title='OWNED'\"><script>top.document.title='OWNED';"
    f"top.location='{EVIL}'</script><style>.verdict{{display:none}}</style>"
    f"<a href='{EVIL}'><rect width='90' height='90'/></a><foreignObject>"
    "<meta xmlns='http://www.w3.org/1999/xhtml' http-equiv='refresh' content='0;url=x'/>"
    "</foreignObject></svg>"
)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_an_attacked_report_stays_where_it_is_and_shows_its_badges(tmp_path: Path) -> None:
    attack = " ".join(text for text in NASTY if text.isprintable())
    (tmp_path / "active.svg").write_text(ACTIVE)
    figured = poisoned(page(), lambda text: text)
    for figure in figured.hypotheses[0].results.figures:
        figure.source = data_uri(tmp_path / "active.svg")
    plain = (hostile_run() / "report.html").read_text()
    pages = {
        "texts": _build("html", poisoned(page(), lambda old: f"{attack}{old}")),
        "figure": _build("html", figured),
    } | {name: plain.replace(ANCHOR, f"{injected}{ANCHOR}") for name, injected in INJECTED.items()}
    assert all(injected in pages[name] for name, injected in INJECTED.items())
    found = look(tmp_path, pages)
    assert list(found) == list(pages)
    for name, said in found.items():
        assert said["title"] == "quiet", name
        assert said["at"].endswith(f"{name}.html"), name
        assert said["badges"], name
        for badge in said["badges"]:
            assert badge["seen"] and badge["right"] and badge["words"], name
            assert badge["wide"] > 40, name
    assert found["figure"]["images"]
    assert min(found["texts"]["images"]) > 0
