"""Drawings, graphs and PDFs as other programs write them, read as they are meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kg.sources.pdf import ReadOptions, read_pdf
from sage.cli.kg import app as kg
from sage_exchange.cli import app as exchange

RUN = CliRunner()


def area(x: float = 0.0, side: float = 100.0, *, close: bool = True) -> list[list[float]]:
    ring = [[x, 0], [x + side, 0], [x + side, side], [x, side]]
    return [*ring, ring[0]] if close else ring


def drawn(geometry: Any, /, id_: str = "a", **properties: Any) -> dict[str, Any]:
    if isinstance(geometry, list):
        geometry = {"type": "Polygon", "coordinates": [geometry]}
    return {"type": "Feature", "id": id_, "geometry": geometry, "properties": properties}


def collection(*features: Any, **more: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features), **more}


TUMOR = {"name": "Tumor"}
LINE = {"type": "LineString", "coordinates": [[0, 0], [9, 9]]}
CELL: dict[str, Any] = {"objectType": "cell", "classification": TUMOR}
CRS84 = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}

DRAWINGS: dict[str, tuple[Any, dict[str, int], int]] = {
    # input: (content, cells and regions by name, features left out)
    "QuPath 0.2, github.com/qupath/qupath/pull/698 (type in id)": (
        [drawn(area(n), "PathCellObject", classification={"name": "Tumor", "colorRGB": -3670016},
               measurements=[{"name": "Nucleus: Area", "value": 20.0}]) for n in range(5)],
        {"neoplastic": 5}, 0,
    ),
    "QuPath 0.4, github.com/qupath/qupath/pull/1099 (names, measurements as object)": (
        collection(drawn(area(), objectType="detection",
                         classification={"names": ["Tumor", "Positive"], "color": [1, 2, 3]},
                         measurements={"Area µm^2": 3.0, "Name": "x"})),
        {"neoplastic_positive": 1}, 0,
    ),
    "QuPath 0.5 (root object and plane of the image)": (
        collection(drawn(area(side=9000), objectType="root"),
                   drawn({"type": "Polygon", "coordinates": [area()],
                          "plane": {"c": -1, "z": 0, "t": 0}}, **CELL)),
        {"neoplastic": 1}, 1,
    ),
    "github.com/azavea/raster-vision/issues/1325 (null geometry)": (
        collection(drawn(None, classification=TUMOR), drawn(area(), classification=TUMOR)),
        {"tumor": 1}, 1,
    ),
    "github.com/digitalpathologybern/hover_next_inference/issues/26 (ring crosses itself)": (
        collection(drawn([[0, 0], [9, 9], [9, 0], [0, 9], [0, 0]], classification=TUMOR)),
        {"tumor": 1}, 0,
    ),
    "github.com/prism-oncology/sopa/issues/112 (GeoPandas: CRS, class as text)": (
        collection(drawn(area(), classification="Stroma"), crs=CRS84), {"stroma": 1}, 0,
    ),
    "github.com/qupath/qupath/pull/846 (NaN among the measurements)": (
        collection(drawn(area(), **CELL, measurements=[
            {"name": "Area", "value": float("nan")}, {"name": "B"}])), {"neoplastic": 1}, 0,
    ),
    "github.com/choosehappy/HistoQC/pull/180 (several polygons as an area)": (
        [drawn({"type": "MultiPolygon", "coordinates": [[area()], [area(300)]]},
               classification=TUMOR)], {"tumor": 1}, 0,
    ),
    "github.com/boyden/NuHTC/issues/10 (contour of two points, of one repeated point)": (
        collection(drawn([[5, 5], [6, 6], [5, 5]], **CELL), drawn([[5, 5]] * 4, **CELL),
                   drawn(area(), **CELL)), {"neoplastic": 1}, 2,
    ),
    "HALO (class as name, layer color)": (
        collection(drawn(area(), name="Tumor", color="#ff0000"),
                   drawn({"type": "GeometryCollection", "geometries": [
                       {"type": "Polygon", "coordinates": [area(200)]}, LINE]}, name="Stroma")),
        {"tumor": 1, "stroma": 1}, 0,
    ),
    "ASAP converted (group as class, ring not closed, byte order mark)": (
        collection(drawn(area(close=False), name="Annotation 0", PartOfGroup="Tumor"),
                   drawn([[0, 0], [9, 0], [0, 9]], name="Annotation 1", PartOfGroup="Tumor")),
        {"tumor": 2}, 0,
    ),
    "own: damaged features among good ones": (
        collection(drawn([[0, 0], [1, 1]], **CELL), drawn([["a", 0], [1, 1], [2, 2]], **CELL),
                   3, drawn({"type": "Circle", "radius": 3}, **CELL), drawn(area(), **CELL)),
        {"neoplastic": 1}, 4,
    ),
    "own: points of the counting tool beside an area without a class": (
        collection(drawn({"type": "MultiPoint", "coordinates": [[1, 1], [2, 2]]},
                         objectType="annotation", classification={"name": "Mitosis"}),
                   drawn(area(), objectType="annotation")),
        {"mitosis": 2}, 0,
    ),
}  # fmt: skip
ASAP = """<?xml version="1.0"?><ASAP_Annotations><Annotations>
<Annotation Name="A 0" Type="Polygon" PartOfGroup="Tumor"><Coordinates>
<Coordinate Order="0" X="0" Y="0"/><Coordinate Order="1" X="9.5" Y="0"/>
<Coordinate Order="2" X="9" Y="9"/></Coordinates></Annotation>
<Annotation Name="A 1" Type="Dot" PartOfGroup="Mitosis"><Coordinates>
<Coordinate Order="0" X="3" Y="3"/></Coordinates></Annotation>
<Annotation Name="A 2" Type="Measurement" PartOfGroup="None"><Coordinates>
<Coordinate Order="0" X="3" Y="3"/><Coordinate Order="1" X="6" Y="3"/></Coordinates></Annotation>
</Annotations></ASAP_Annotations>"""
HALO = """<Annotations><Annotation LineColor="65280" Name="Stroma" Visible="True"><Regions>
<Region Type="Rectangle" NegativeROA="0"><Vertices><V X="0" Y="0"/><V X="90" Y="60"/></Vertices>
</Region><Region Type="Ellipse" NegativeROA="1"><Vertices><V X="9" Y="9"/><V X="30" Y="9"/>
<V X="30" Y="30"/></Vertices></Region><Region Type="Ellipse" NegativeROA="0"><Vertices>
<V X="200" Y="0"/><V X="260" Y="90"/></Vertices></Region></Regions></Annotation></Annotations>"""
IMAGESCOPE = """<Annotations MicronsPerPixel="0.25"><Annotation Id="1" Name="Tumor"><Regions>
<Region Id="1" Type="0" NegativeROA="0"><Vertices><Vertex X="0" Y="0" Z="0"/>
<Vertex X="50" Y="0" Z="0"/><Vertex X="50" Y="50" Z="0"/></Vertices></Region>
<Region Id="2" Type="4" NegativeROA="0"><Vertices><Vertex X="0" Y="0" Z="0"/>
<Vertex X="5" Y="0" Z="0"/></Vertices></Region></Regions></Annotation></Annotations>"""
XML: dict[str, tuple[str, dict[str, int], int]] = {
    "ASAP (polygon, dot, measured line)": (ASAP, {"tumor": 1, "mitosis": 1}, 1),
    "HALO (box of two corners, hole, ellipse)": (HALO, {"stroma": 2}, 0),
    "ImageScope (ruler)": (IMAGESCOPE, {"tumor": 1}, 1),
}


def import_drawing(path: Path, out: Path) -> tuple[dict[str, int], list[str]]:
    ended = RUN.invoke(
        exchange,
        ["maps", "import", "qupath", str(path), "--mpp", "0.25", "--out", str(out), "--json"],
    )
    assert ended.exit_code == 0, ended.output
    (row,) = json.loads(ended.stdout)
    return row["cells"] | row["objects"] | row["regions"], row["notes"]


@pytest.mark.parametrize("source", DRAWINGS)
def test_a_drawing_is_read_feature_by_feature(source: str, tmp_path: Path) -> None:
    content, right, left = DRAWINGS[source]
    path = tmp_path / "s1.geojson"
    mark = "\ufeff" if "byte order" in source else ""
    path.write_text(mark + json.dumps(content), encoding="utf-8")
    found, notes = import_drawing(path, tmp_path / "maps")
    assert found == right
    assert any(f": {left} of " in note for note in notes) == (left > 0)
    assert any("CRS84" in note for note in notes) == ("CRS" in source)
    assert any("without a class" in note for note in notes) == ("without a class" in source)


@pytest.mark.parametrize("source", XML)
def test_annotations_in_xml_are_read_alike(source: str, tmp_path: Path) -> None:
    text, right, left = XML[source]
    path = tmp_path / "s1.xml"
    path.write_text(text, encoding="utf-8")
    found, notes = import_drawing(path, tmp_path / "maps")
    assert found == right
    assert any(f": {left} of " in note for note in notes) == (left > 0)


def test_a_drawing_of_lines_alone_is_refused_with_the_count(tmp_path: Path) -> None:
    path = tmp_path / "s1.geojson"
    path.write_text(json.dumps(collection(drawn(LINE), drawn(LINE))))
    ended = RUN.invoke(exchange, ["maps", "import", "qupath", str(path), "--mpp", "0.25"])
    assert "2 of 2 features left out" in str(ended.exception)


HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="urn:y" xmlns:x="urn:x">'


def graphml(keys: str, body: str, direction: str = "directed") -> str:
    return f'{HEAD}{keys}<graph edgedefault="{direction}">{body}</graph></graphml>'


def yed(label: str, element: str = "Node") -> str:
    form = "ShapeNode" if element == "Node" else "ArcEdge"
    return (
        f'<data key="g"><y:{form}><y:Geometry x="1"/><y:{element}Label/>'
        f"<y:{element}Label>{label}<y:LabelModel>\n</y:LabelModel></y:{element}Label></y:{form}></data>"
    )


G = (
    '<key id="g" for="node" yfiles.type="nodegraphics"/>'
    '<key id="g" for="edge" yfiles.type="edgegraphics"/>'
)
GEPHI = (
    '<key attr.name="label" for="node" id="label"/><key attr.name="Edge Label" for="edge" '
    'id="edgelabel"/><key attr.name="weight" for="edge" id="weight"/><key attr.name="r" for="node" '
    'id="r"/>'
)
EDGE = '<edge source="a" target="b"/>'
NODES = '<node id="a"/><node id="b"/>'

GRAPHS: dict[str, tuple[str, list[str], list[str], dict[str, int], str]] = {
    # input: (text, names, relations, sizes of groups, word of a note)
    "github.com/networkx/networkx/issues/669, /pull/776 (yEd labels, curved edge)": (
        graphml(G, f'<node id="a">{yed("CD8 T cell")}</node><node id="b">{yed("PD-L1")}</node>'
                   f'<edge source="a" target="b">{yed("binds", "Edge")}</edge>'),
        ["CD8 T cell", "PD-L1"], ["binds"], {}, "",
    ),
    "github.com/networkx/networkx/pull/2644, jamesscottbrown/pyyed/issues/28 (nested groups)": (
        graphml(G, f'<node id="m" yfiles.foldertype="group">{yed("Myeloid")}<graph>'
                   f'<node id="s" yfiles.foldertype="group">{yed("Dendritic")}<graph>'
                   f'<node id="a">{yed("cDC1")}</node></graph></node>'
                   f'<node id="b">{yed("TAM")}</node></graph></node>{EDGE}'),
        ["TAM", "cDC1"], ["related_to"], {"Myeloid": 2, "Dendritic": 1}, "Myeloid (2)",
    ),
    "github.com/networkx/networkx/issues/2827 (edges with one ID, unnamed nodes)": (
        graphml("", NODES + '<edge id="0" source="a" target="b"/><edge id="0" source="b" '
                            'target="a"/>'),
        ["a", "b"], ["related_to", "related_to"], {}, "without a label",
    ),
    "github.com/dondi/GRNsight/issues/321 (yFiles labels as lists)": (
        graphml('<key id="l" for="node" attr.name="NodeLabels"/>',
                '<node id="a"><data key="l"><x:List><y:Label><y:Label.Text>Gene1</y:Label.Text>'
                "</y:Label></x:List></data></node>" '<node id="b"/>' + EDGE),
        ["Gene1", "b"], ["related_to"], {}, "",
    ),
    "github.com/networkx/networkx/issues/2197 (Cytoscape without a namespace)": (
        '<graphml><key attr.name="name" for="node" id="n"/><graph edgedefault="directed">'
        f'<node id="a"><data key="n">TP53</data></node><node id="b"/>{EDGE}</graph></graphml>',
        ["TP53", "b"], ["related_to"], {}, "",
    ),
    "github.com/networkx/networkx/issues/3883 (GraphML in a file .gml)": (
        graphml("", NODES + EDGE), ["a", "b"], ["related_to"], {}, "",
    ),
    "github.com/igraph/igraph/issues/910 (Cytoscape: keys of edges declared for nodes)": (
        graphml('<key attr.name="interaction" for="node" id="i"/>', NODES + '<edge source="a" '
                'target="b"><data key="i">inhibits</data></edge>'),
        ["a", "b"], ["inhibits"], {}, "",
    ),
    "Gephi (label, Edge Label, weight, no direction)": (
        graphml(GEPHI, '<node id="0.0"><data key="label">FGFR3</data><data key="r">9</data></node>'
                '<node id="1.0"><data key="label">luminal</data></node><edge source="0.0" '
                'target="1.0"><data key="edgelabel">marks</data><data key="weight">2</data></edge>',
                "undirected"),
        ["FGFR3", "luminal"], ["marks"], {}, "without a direction",
    ),
    "Cytoscape (name is a number, shared name tells; interaction)": (
        graphml('<key id="n" for="node" attr.name="name"/><key id="s" for="node" attr.name='
                '"shared name"/><key id="i" for="edge" attr.name="shared interaction"/>',
                '<node id="61"><data key="n">61</data><data key="s">TP53</data></node><node '
                'id="62"><data key="s">MDM2</data></node><edge source="61" target="62"><data '
                'key="i">induces</data></edge>'),
        ["MDM2", "TP53"], ["induces"], {}, "",
    ),
    "own: default values and a hyperedge": (
        graphml('<key id="i" for="edge" attr.name="interaction"><default>inhibits</default></key>',
                f'{NODES}{EDGE}<hyperedge><endpoint node="a"/></hyperedge>'),
        ["a", "b"], ["inhibits"], {}, "hyperedge (1)",
    ),
    "own: an edge that ends at a group keeps the group as a node": (
        graphml(G, f'<node id="b">{yed("Immune")}<graph><node id="c">{yed("NK")}</node></graph>'
                   f'</node><node id="a">{yed("IL15")}</node>{EDGE}'),
        ["IL15", "Immune", "NK"], ["related_to"], {"Immune": 1}, "Immune (1)",
    ),
}  # fmt: skip


def export_graph(path: Path, out: Path) -> tuple[dict[str, Any], str]:
    ended = RUN.invoke(kg, ["export", "-g", str(path), "--format", "json", "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    return json.loads(out.read_text()), " ".join(ended.stderr.split())


@pytest.mark.parametrize("source", GRAPHS)
def test_a_graph_keeps_its_labels(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_HOME", str(tmp_path / "home"))
    text, names, relations, groups, word = GRAPHS[source]
    path = tmp_path / ("g.gml" if ".gml" in source else "g.graphml")
    path.write_text(text, encoding="utf-8")
    found, said = export_graph(path, tmp_path / "g.json")
    assert sorted(node["name"] for node in found["nodes"]) == names
    assert sorted(edge["relation"] for edge in found["edges"]) == relations
    held = found["graph"].get("groups", {})
    assert {name: len(members) for name, members in held.items()} == groups
    assert word in said


SENTENCE = "The infiltration of fibroblasts into the bladder was associated with survival of men."


def pdf(text: str, map_to: dict[str, str], placed: str = "") -> bytes:
    """A page in Helvetica whose font maps each letter to itself or to a code of `map_to`.

    `placed` are operators that draw the text otherwise than in a single string.
    """
    lines = [f"<{ord(c):02x}> <{map_to.get(c, f'{ord(c):04x}')}>" for c in sorted(set(text))]
    listed = "\n".join(lines)
    cmap = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def "
        "1 begincodespacerange <00> <ff> endcodespacerange "
        f"{len(lines)} beginbfchar\n{listed}\nendbfchar endcmap end end"
    )
    show = f"BT /F 10 Tf 50 700 Td {placed or f'({text}) Tj'} ET"
    bodies = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        "/Resources<</Font<</F 5 0 R>>>>>>",
        f"<</Length {len(show)}>>stream\n{show}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        f"<</Length {len(cmap)}>>stream\n{cmap}\nendstream",
    ]
    out, places = "%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size, start = len(bodies) + 1, len(out)
    out += f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\n"
    return (out + f"startxref\n{start}\n%%EOF").encode("latin-1")


PDFS: dict[str, tuple[str, dict[str, str], int]] = {
    # input: (text, code of letters, unreadable characters); "~" stands for a ligature
    "github.com/py-pdf/pypdf/issues/1351 (ligature mapped to NUL)": (
        SENTENCE.replace("fi", "~"), {"~": "0000"}, 2,
    ),
    "github.com/pymupdf/PyMuPDF/issues/2785 (ligature as two letters)": (
        SENTENCE.replace("fi", "~"), {"~": "00660069"}, 0,
    ),
    "own: plain text": (SENTENCE, {}, 0),
    "own: a bullet of a symbol font": ("~ " + SENTENCE, {"~": "f0b7"}, 1),
}  # fmt: skip


PLACED = {
    "github.com/py-pdf/pypdf/issues/1328, /issues/3341 (words placed without spaces)": " ".join(
        f"({word}) Tj {len(word) * 6 + 4} 0 Td" for word in SENTENCE.split()
    ),
    "github.com/py-pdf/pypdf/issues/3978, /issues/1153 (gaps between words without spaces)": (
        "[" + " -330 ".join(f"({word})" for word in SENTENCE.split()) + "] TJ"
    ),
}


@pytest.mark.parametrize("source", PLACED)
def test_a_pdf_has_its_spaces_where_they_are_seen(source: str, tmp_path: Path) -> None:
    data = pdf(SENTENCE, {}, PLACED[source])
    (found,) = read_pdf(tmp_path / "a.pdf", data, ReadOptions()).documents
    assert found.text == SENTENCE


def build(path: Path, out: Path) -> tuple[dict[str, Any], str]:
    arguments = f"build {path} --out {out} --embedder none --workers 1 --json".split()
    ended = RUN.invoke(kg, arguments)
    assert ended.exit_code == 0, ended.output
    table = RUN.invoke(kg, [word for word in arguments if word != "--json"])
    return json.loads(ended.stdout), " ".join(table.output.split())


@pytest.mark.parametrize("source", PDFS)
def test_a_pdf_counts_what_cannot_be_read(source: str, tmp_path: Path) -> None:
    text, codes, lost = PDFS[source]
    read = read_pdf(tmp_path / "a.pdf", pdf(text, codes), ReadOptions())
    assert read.report.unread == lost


def test_a_build_says_what_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_HOME", str(tmp_path / "home"))
    (tmp_path / "a.pdf").write_bytes(pdf(SENTENCE.replace("fi", "~"), {"~": "0000"}))
    report, table = build(tmp_path / "a.pdf", tmp_path / "graph")
    assert report["unread_characters"] == sum(s["unread"] for s in report["sources"]) == 2
    assert "2 characters could not be read" in table  # from the store
