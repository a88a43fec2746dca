"""Questions in TruthHypo's form: links and relations, by a graph or by a model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.adapters.multiple_choice import answer_all, lay_out
from benchmarks.adapters.truthhypo import by_links, links_of, read_edges, read_items, score_links
from kg.types import EntityType, Polarity
from sage.core.errors import InputError
from tests.end_to_end.harness import sage
from tests.kg.gr_helpers import graph, triple
from tests.openai_server import serve
from tests.sage.choices import THREE, chooses, pair, write_table

C, G1, G2, G3, G4 = "Chemical|MESH:D1", "Gene|1", "Gene|2", "Gene|3", "Gene|4"
EDGES = "x_id\ty_id\trelation"


def questions(folder: Path) -> Path:
    rows = [
        pair(C, G1, "positive_correlate", THREE),
        pair(G1, G2, "no_relation", THREE),
        pair(G1, G3, "negative_correlate", THREE),
        pair(G3, G4, "negative_correlate", THREE),
    ]
    return write_table(folder / "edges_test.tsv", rows)


def test_a_graph_answers_by_its_links_and_by_signs_over_one_entity(tmp_path: Path) -> None:
    questions(tmp_path)
    rows = [
        f"{C}\tGene|9\tstimulate", f"Gene|9\t{G1}\tpositive_correlate",  # over one: positive
        f"{G1}\t{G3}\tnegative_correlate",  # said
        f"{G3}\t{G4}\tassociate",  # a link without a sign
        "Gene|7\tGene|8\tinhibit",
    ]  # fmt: skip
    write_table(tmp_path / "edges_train.tsv", rows, EDGES)
    words = ("bench", "truthhypo", "edges_test.tsv", "--graph", "edges_train.tsv")
    done = sage(*words, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert [item["right"] for item in done.json["answers"]] == [True, False, True, False]
    assert [bool(item["letter"]) for item in done.json["answers"]] == [True, False, True, False]
    whole = done.json["scores"][0]
    assert (whole["linked"], whole["precision"]["value"]) == (3, 1)
    assert whole["recall"]["count"] == 2 and whole["f1"] == pytest.approx(0.8)
    assert whole["accuracy"]["value"] == 0.5
    assert whole["floor_accuracy"] == 0.75, "of each pair of types its most frequent relation"
    assert whole["floor_f1"] == pytest.approx(2 * 0.75 / 1.75, abs=1e-4)
    told = sage(*words, cwd=tmp_path).out
    assert "Chemical & Gene: 1 questions, 1 of a link" in told and "floor: F1 0.857" in told


def test_options_need_no_quotation_marks(tmp_path: Path) -> None:
    text = "positive_correlate, negative_correlate, no_relation"
    path = write_table(tmp_path / "q.tsv", [pair(G1, G2, "no_relation", text)])
    (item,), _ = read_items([path])
    assert set(item.question.wrong) == {"positive_correlate", "negative_correlate"}


def test_denials_and_even_signs_are_no_guess(tmp_path: Path) -> None:
    path = write_table(tmp_path / "q.tsv", [pair(G1, G2, "no_relation", THREE)])
    items, _ = read_items([path])

    def answer(*rows: str) -> str | None:
        known = read_edges(write_table(tmp_path / "g.tsv", list(rows), EDGES), (G1, G2))
        (said,) = answer_all([items[0].question], by_links(items, known), 0)
        return lay_out(items[0].question, 0).get(said.letter)

    assert answer(f"{G3}\t{G4}\tinhibit") is None
    assert answer(f"{G1}\t{G2}\tno_relation") == "no_relation"
    assert answer(f"{G1}\t{G2}\tinhibit") == "negative_correlate"
    assert answer(f"{G2}\t{G1}\tpositive_correlate", f"{G1}\t{G2}\tnegative_correlate") is None
    assert answer(f"{G1}\t{G3}\tinhibit", f"{G3}\t{G2}\tinhibit") == "positive_correlate"
    even = (f"{G1}\t{G3}\tinhibit", f"{G3}\t{G2}\tinhibit", f"{G1}\t{G4}\tinhibit",
            f"{G4}\t{G2}\tstimulate")  # fmt: skip
    assert answer(*even) is None
    assert answer(f"{G1}\t{G3}\tcotreat", f"{G3}\t{G2}\tinhibit") is None


def test_a_graph_of_sage_answers_by_name_and_as_of_a_year(tmp_path: Path) -> None:
    gene = EntityType.GENE
    made = graph([
        triple("N1", "N2", types=(gene, gene), relation="decreases", doc="a", year=2015,
               polarity=Polarity.NEGATIVE),
        triple("N3", "N1", types=(gene, gene), relation="raises", doc="b", year=2022,
               polarity=Polarity.POSITIVE),
    ])  # fmt: skip
    made.save_sidecar(tmp_path / "graph")
    rows = [pair(G1, G2, "negative_correlate", THREE), pair(G1, G3, "positive_correlate", THREE)]
    write_table(tmp_path / "q.tsv", rows)
    words = ("bench", "truthhypo", "q.tsv", "--graph", "graph", "--json")
    now, then = (sage(*words, *more, cwd=tmp_path) for more in ((), ("--as-of", "2016")))
    assert [item["right"] for item in now.json["answers"]] == [True, True], now.err
    assert [bool(item["letter"]) for item in then.json["answers"]] == [True, False]
    items, _ = read_items([tmp_path / "q.tsv"])
    _, nodes = links_of(made, items)
    assert set(nodes) == {G1, G2, G3}


def test_a_model_is_asked_and_a_broken_reply_is_no_link(tmp_path: Path) -> None:
    questions(tmp_path)
    for words, right, unusable in (("positive_correlate", 1, 0), ("", 0, 4)):
        with serve(chooses(words)) as server:
            given = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
            done = sage("bench", "truthhypo", "edges_test.tsv", "--agent", "chat", "--json",
                        "--out", f"kept{right}", cwd=tmp_path, **given)  # fmt: skip
        whole = done.json["scores"][0]
        assert (whole["accuracy"]["count"], whole["unusable"]) == (right, unusable), done.err
        assert whole["answered"]["count"] == 4 - unusable
        assert done.json["spent"]["calls"] == len(server.requests)


def test_rows_that_repeat_are_asked_once_and_labels_come_from_the_file(tmp_path: Path) -> None:
    rows = [pair(G1, G2, "stimulate"), pair(G1, G2, "stimulate"), pair(G3, G4, "no_relation"),
            pair(G1, G2, "no_relation")]  # fmt: skip
    path = write_table(tmp_path / "q.tsv", rows)
    items, repeated = read_items([path])
    assert (len(items), repeated) == (3, 1)
    pd.read_csv(path, sep="\t").to_parquet(tmp_path / "q.parquet")
    assert read_items([tmp_path / "q.parquet"]) == (items, 1)
    assert items[0].question.wrong == ("no_relation",)
    assert items[0].names == ("N1", "N2")
    assert [item.question.id for item in items][::2] == ["Gene|1~Gene|2", "Gene|1~Gene|2~2"]
    answered = answer_all([item.question for item in items], by_links(items, {}), 0)
    (whole,) = score_links(items, answered, 0)
    assert (whole.f1, whole.precision, whole.answered.count) == (0, None, 0)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no question"),
        ([pair(G1, G2, "elsewhere", THREE)], "line 2: relation 'elsewhere' is not offered"),
        (["a\tb\tc\td"], 'line 2: x_id and y_id are "Type'),
        ([f"{G1}\t{G2}\t\tq"], "line 2: relation is empty"),
        ([pair(G1, G2, "stimulate")], "has 1 answer;"),
        (
            [f"{G1}\t{G2}\tno_relation\t{'x' * 1_000_000} one of ['a', 'no_relation']"],
            "field larger",
        ),
        ([f"{G1}\t{G2}\tno\tq\textra\textra"], "line 2: has 6 cells, the head 4"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_items([write_table(tmp_path / "q.tsv", rows)])


def test_graphs_that_cannot_serve_are_refused_with_exit_code_2(tmp_path: Path) -> None:
    questions(tmp_path)
    write_table(tmp_path / "e.tsv", [f"{G1}\t{G2}"], EDGES)
    (tmp_path / "bytes.tsv").write_bytes(b"x_id\ty_id\trelation\n\xff\t\t\n")
    (tmp_path / "empty.tsv").write_text("")
    write_table(tmp_path / "head.tsv", [], EDGES)
    for more, said in (
        ((), "give --graph"),
        (("--graph", "edges_test.tsv"), "holds questions with their answers"),
        (("--graph", "e.tsv"), "line 2: has 2 cells"),
        (("--graph", "head.tsv"), "holds no edges"),
        (("--graph", "bytes.tsv"), "cannot be read"),
        (("--graph", "empty.tsv"), "names no columns"),
        (("--graph", "e.tsv", "--as-of", "2020"), "has no years"),
        (("--graph", "absent"), "absent"),
        (("--agent", "chat", "--graph", "e.tsv"), "go with --agent rules"),
    ):
        done = sage("bench", "truthhypo", "edges_test.tsv", *more, cwd=tmp_path)
        assert done.code == 2 and said in done.err, (more, done.err)
    write_table(tmp_path / "edges.tsv", [f"{G1}\t{G2}\tinhibit"], EDGES)
    done = sage("bench", "truthhypo", "edges.tsv", cwd=tmp_path)
    assert done.code == 2 and "edges.tsv: has no column question" in done.err
