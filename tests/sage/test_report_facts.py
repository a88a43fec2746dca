"""The report refuses numbers without a key and citations without a source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.types import Citation
from sage.report.facts import (
    Facts,
    Pen,
    ReportError,
    check,
    free_numbers,
    to_html,
    to_markdown,
    verbatim,
)

PAPER = Citation(title="A paper", year=2020, doi="10.1000/x")


def _pen() -> Pen:
    facts = Facts()
    facts.add("h1.primary.hr", 1.684, "1.68")
    return Pen(facts, [PAPER])


def test_a_number_with_a_key_passes_and_names_it() -> None:
    text = _pen().sentence("The hazard ratio was [[primary.hr]].", "h1")
    check(text)
    assert to_markdown(text) == "The hazard ratio was 1.68."
    assert '<data value="h1.primary.hr"' in to_html(text)


def test_a_number_without_a_key_stops_the_report() -> None:
    with pytest.raises(ReportError, match=r"1\.7"):
        check("The hazard ratio was 1.7.")


def test_a_label_that_looks_like_an_unknown_key_is_shown_and_no_number() -> None:
    with pytest.raises(ReportError, match=r"h1\.primary\.or"):
        _pen().number("h1.primary.or")
    assert to_markdown(_pen().sentence("[[primary.or]]", "h1")) == "[[primary.or]]"


def test_a_citation_without_a_source_record_stops_the_report() -> None:
    assert "[1]" in to_markdown(_pen().cite(PAPER))
    with pytest.raises(ReportError, match="Invented"):
        _pen().cite(Citation(title="Invented", doi="10.1000/invented"))


def test_numbers_hidden_in_markup_are_found() -> None:
    with pytest.raises(ReportError):
        check("<p>n&#61;</p><td>312</td>")


@given(st.integers(min_value=0, max_value=10**6))
def test_any_free_integer_is_found(number: int) -> None:
    assert free_numbers(f"a total of {number} patients")
    check(verbatim(f"a total of {number} patients"))
