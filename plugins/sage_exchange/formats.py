"""Readers that convert files published by public collections into facts."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kg.types import EntityType as T
from kg.types import Polarity
from sage.core.errors import InputError
from sage_exchange.facts import (
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    Entity,
    Fact,
    gene,
    read_table,
)
from sage_exchange.files import open_text

_Sign = tuple[str, Polarity]


def trrust(path: Path) -> Iterator[Fact]:
    """Yield facts from TRRUST v2 (tab-separated factor, target, mode of regulation, and PMIDs)."""
    modes: dict[str, _Sign] = {
        "activation": ("activates", POSITIVE),
        "repression": ("inhibits", NEGATIVE),
        "unknown": ("regulates", NEUTRAL),
    }
    with open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != 4 or cells[2].lower() not in modes:
                raise InputError(
                    f"{path}, row {number}: expected factor, target, Activation, Repression or "
                    "Unknown, and PMIDs, separated by tabs"
                )
            relation, polarity = modes[cells[2].lower()]
            for pmid in re.findall(r"\d+", cells[3]):
                yield Fact(gene(cells[0]), relation, gene(cells[1]), polarity, pmid=pmid,
                           source="TRRUST")  # fmt: skip


_SIGNOR_TYPES = {
    "protein": T.PROTEIN, "proteinfamily": T.PROTEIN, "complex": T.PROTEIN, "mirna": T.GENE,
    "ncrna": T.GENE, "chemical": T.CHEMICAL, "smallmolecule": T.CHEMICAL, "antibody": T.TREATMENT,
    "phenotype": T.BIOLOGICAL_PROCESS, "stimulus": T.BIOLOGICAL_PROCESS,
}  # fmt: skip


def signor(path: Path) -> Iterator[Fact]:
    """Yield facts from SIGNOR's release table (columns ENTITYA, TYPEA, IDA, EFFECT, etc.)."""
    needed = ("ENTITYA", "TYPEA", "IDA", "ENTITYB", "TYPEB", "IDB", "EFFECT", "PMID")
    with open_text(path) as stream:
        for row in read_table(path, stream, needed):
            effect = row["effect"].strip('" ').lower()
            if effect.startswith("up-regulates"):
                relation, polarity = "activates", POSITIVE
            elif effect.startswith("down-regulates"):
                relation, polarity = "inhibits", NEGATIVE
            elif effect == "form complex":
                relation, polarity = "binds", NEUTRAL
            else:
                relation, polarity = "regulates", NEUTRAL
            ends = []
            for side in "ab":
                kind = _SIGNOR_TYPES.get(row[f"type{side}"].replace("-", "").lower(), T.OTHER)
                name = row[f"entity{side}"]
                single = row[f"type{side}"].lower() == "protein"
                ends.append(
                    gene(name) if single else Entity(f"signor:{row[f'id{side}']}", name, kind)
                )
            pmid = row["pmid"].strip()
            score = row.get("score", "")
            yield Fact(
                ends[0], relation, ends[1], polarity,
                confidence=float(score) if re.fullmatch(r"[01]?\.\d+", score) else 0.9,
                pmid=pmid if pmid.isdigit() else None,
                text=row.get("sentence", "").strip(), source="SIGNOR",
            )  # fmt: skip


def ctd(path: Path) -> Iterator[Fact]:
    """Yield curated facts from CTD's chemical–disease, gene–disease, or chemical–gene tables."""
    with open_text(path) as stream:
        for row in read_table(path, stream, ("PubMedIDs",)):
            found = _ctd_interaction(row) if "interactionactions" in row else _ctd_disease(row)
            if found is None:
                continue
            head, relation, tail, polarity, text = found
            pmids: list[str | None] = [p for p in row["pubmedids"].split("|") if p.isdigit()]
            for pmid in pmids or [None]:
                yield Fact(head, relation, tail, polarity, pmid=pmid, text=text, source="CTD")


def _mesh(number: str, name: str, kind: T) -> Entity:
    number = number.removeprefix("MESH:")
    scheme = "omim" if number.startswith("OMIM:") else "mesh"
    return Entity(f"{scheme}:{number.removeprefix('OMIM:')}", name, kind)


def _ctd_disease(row: dict[str, str]) -> tuple[Entity, str, Entity, Polarity, str] | None:
    kinds = {
        "therapeutic": ("treats", NEGATIVE),
        "marker/mechanism": ("associated_with", POSITIVE),
    }
    found = kinds.get(row.get("directevidence", "").split("|")[0].lower())
    if found is None:  # inferred, not curated
        return None
    disease = _mesh(row["diseaseid"], row["diseasename"], T.DISEASE)
    if "chemicalname" in row:
        head = _mesh(row["chemicalid"], row["chemicalname"], T.CHEMICAL)
        relation = "promotes" if found[0] == "associated_with" else found[0]
        return head, relation, disease, found[1], ""
    return gene(row["genesymbol"], row["geneid"]), found[0], disease, found[1], ""


def _ctd_interaction(row: dict[str, str]) -> tuple[Entity, str, Entity, Polarity, str] | None:
    degree = {"increases": ("upregulates", POSITIVE), "decreases": ("downregulates", NEGATIVE)}
    response = {
        "increases": ("sensitizes_to", POSITIVE),
        "decreases": ("confers_resistance_to", NEGATIVE),
    }
    actions = row["interactionactions"].split("|")
    if len(actions) != 1:  # "[X co-treated with Y] results in ...": whose act it is, is not said
        return None
    way, _, action = actions[0].partition("^")
    chemical = _mesh(row["chemicalid"], row["chemicalname"], T.CHEMICAL)
    acting, acted_on = chemical, gene(row["genesymbol"], row["geneid"])
    text = row["interaction"]
    if not text.casefold().startswith(row["chemicalname"].casefold()):
        if not text.startswith(row["genesymbol"]):
            return None
        acting, acted_on = acted_on, acting  # "ABCC2 protein results in ... Cisplatin"
    of = response if action == "response to substance" else degree
    relation, polarity = of.get(way, ("affects", NEUTRAL))
    if action == "binding":
        relation, polarity = "binds", NEUTRAL
    return acting, relation, acted_on, polarity, text


_HETIONET = {
    "Anatomy": T.TISSUE_REGION, "Biological Process": T.BIOLOGICAL_PROCESS,
    "Cellular Component": T.OTHER, "Compound": T.CHEMICAL, "Disease": T.DISEASE, "Gene": T.GENE,
    "Molecular Function": T.BIOLOGICAL_PROCESS, "Pathway": T.PATHWAY,
    "Pharmacologic Class": T.TREATMENT, "Side Effect": T.DISEASE, "Symptom": T.DISEASE,
}  # fmt: skip
_METAEDGE: dict[str, _Sign] = {
    "a": ("associated_with", POSITIVE), "b": ("binds", NEUTRAL), "c": ("promotes", POSITIVE),
    "d": ("downregulates", NEGATIVE), "e": ("expresses", POSITIVE),
    "i": ("interacts_with", NEUTRAL), "l": ("acts_in", NEUTRAL),
    "p": ("participates_in", POSITIVE), "r": ("associated_with", POSITIVE),
    "t": ("treats", NEGATIVE), "u": ("upregulates", POSITIVE), "r>": ("regulates", NEUTRAL),
    # letters with two meanings: palliates, presents, covaries, includes
    "CpD": ("treats", NEGATIVE), "DpS": ("associated_with", POSITIVE),
    "GcG": ("correlates_with", NEUTRAL), "PCiC": ("contains", NEUTRAL),
}  # fmt: skip


def hetionet(path: Path) -> Iterator[Fact]:
    """Yield facts from Hetionet edges (SIF); names come from a `*nodes.tsv` in the same folder.

    The SIF columns are source, metaedge, and target. Hetionet has no dates, so its edges have no
    year and cannot be used in a backtest.
    """
    names: dict[str, str] = {}
    for nodes in sorted(path.parent.glob("*nodes.tsv")):
        with open_text(nodes) as stream:
            names |= {row["id"]: row["name"] for row in read_table(nodes, stream, ("id", "name"))}
    with open_text(path) as stream:
        for row in read_table(path, stream, ("source", "metaedge", "target")):
            middle = re.search(r"[a-z]>?", row["metaedge"])
            usual = _METAEDGE.get(middle[0] if middle else "", ("associated_with", NEUTRAL))
            relation, polarity = _METAEDGE.get(row["metaedge"], usual)
            ends = []
            for node in (row["source"], row["target"]):
                kind, _, number = node.partition("::")
                if kind not in _HETIONET:
                    raise InputError(f'{path}: "{node}" is not a Hetionet node (KIND::IDENTIFIER)')
                id_ = f"ncbigene:{number}" if kind == "Gene" else number
                ends.append(Entity(id_, names.get(node, number), _HETIONET[kind]))
            yield Fact(ends[0], relation, ends[1], polarity, source="Hetionet")


_PUBTATOR_TYPES = {
    "gene": T.GENE, "geneorgeneproduct": T.GENE, "disease": T.DISEASE,
    "diseaseorphenotypicfeature": T.DISEASE, "chemical": T.CHEMICAL, "chemicalentity": T.CHEMICAL,
    "species": T.ORGANISM, "organismtaxon": T.ORGANISM, "cellline": T.CELL_LINE,
    "sequencevariant": T.MUTATION, "variant": T.MUTATION, "mutation": T.MUTATION,
    "dnamutation": T.MUTATION, "proteinmutation": T.MUTATION, "snp": T.MUTATION,
}  # fmt: skip
_PUBTATOR: dict[str, _Sign] = {
    "association": ("associated_with", NEUTRAL), "associate": ("associated_with", NEUTRAL),
    "positive_correlation": ("correlates_with", POSITIVE),
    "positive_correlate": ("correlates_with", POSITIVE), "stimulate": ("activates", POSITIVE),
    "negative_correlation": ("correlates_negatively_with", NEGATIVE),
    "negative_correlate": ("correlates_negatively_with", NEGATIVE),
    "inhibit": ("inhibits", NEGATIVE), "cause": ("promotes", POSITIVE),
    "cid": ("promotes", POSITIVE),
    "treat": ("treats", NEGATIVE), "prevent": ("treats", NEGATIVE), "bind": ("binds", NEUTRAL),
    "interact": ("binds", NEUTRAL), "drug_interact": ("affects", NEUTRAL),
    "drug_interaction": ("affects", NEUTRAL), "cotreatment": ("associated_with", NEUTRAL),
    "cotreat": ("associated_with", NEUTRAL), "comparison": ("associated_with", NEUTRAL),
    "compare": ("associated_with", NEUTRAL), "conversion": ("affects", NEUTRAL),
    "convert": ("affects", NEUTRAL),
}  # fmt: skip


def pubtator(path: Path) -> Iterator[Fact]:
    """Yield facts from PubTator text with relations (BioRED, BC5CDR) or PubTator3's BioC-JSON."""
    with open_text(path) as stream:
        text = stream.read()
    if text.lstrip()[:1] in "[{":
        yield from _bioc(path, text)
        return
    found = False
    for block in re.split(r"\n\s*\n", text):
        texts: dict[str, str] = {}
        known: dict[str, Entity] = {}
        relations: list[list[str]] = []
        pmid = None
        for line in block.splitlines():
            if head := re.match(r"^(\d+)\|([ta])\|(.*)$", line):
                pmid, texts[head[2]] = head[1], head[3]
                continue
            cells = line.split("\t")
            if len(cells) >= 6 and cells[1].isdigit():
                kind = _PUBTATOR_TYPES.get(cells[4].lower().replace("_", ""))
                for id_ in re.split(r"[,;|]", cells[5]):
                    if kind and id_.strip() not in {"", "-", "-1"}:
                        known.setdefault(id_, _pubtator_entity(id_.strip(), cells[3], kind))
            elif len(cells) >= 4 and not cells[1].isdigit():
                relations.append(cells)
        passage = f"{texts.get('t', '')} {texts.get('a', '')}".strip()
        for cells in relations:
            relation, polarity = _PUBTATOR.get(cells[1].lower(), ("associated_with", NEUTRAL))
            for first in re.split(r"[,;|]", cells[2]):
                for second in re.split(r"[,;|]", cells[3]):
                    if first in known and second in known:
                        found = True
                        yield Fact(
                            known[first], relation, known[second], polarity, pmid=pmid,
                            title=texts.get("t", ""), text=passage, source="PubTator",
                        )  # fmt: skip
    if not found:
        raise InputError(
            f"{path}: no relations found; expected PubTator text (PMID|t|, PMID|a|, annotations, "
            "relations) or a BioC-JSON export"
        )


def _pubtator_entity(number: str, name: str, kind: T) -> Entity:
    if kind == T.GENE:
        return gene(name, number)
    number = number.removeprefix("MESH:")
    scheme = {T.ORGANISM: "taxon", T.CELL_LINE: "cellosaurus", T.MUTATION: "variant"}.get(kind)
    scheme = scheme or ("omim" if number.startswith("OMIM:") else "mesh")
    return Entity(f"{scheme}:{number.removeprefix('OMIM:')}", name, kind)


def _bioc(path: Path, text: str) -> Iterator[Fact]:
    for document in _documents(path, text):
        known: dict[str, Entity] = {}
        year: int | None = None
        parts: list[str] = []
        for passage in document.get("passages", ()):
            infons = passage.get("infons", {})
            if year is None and str(infons.get("year", "")).isdigit():
                year = int(infons["year"])
            if infons.get("type") in {"title", "abstract"}:
                parts.append(str(passage.get("text", "")))
            for annotation in passage.get("annotations", ()):
                of = annotation.get("infons", {})
                kind = _PUBTATOR_TYPES.get(str(of.get("type", "")).lower())
                number = str(of.get("identifier") or "")
                if kind and number and number != "-":
                    entity = _pubtator_entity(number, str(annotation.get("text", number)), kind)
                    known.setdefault(number.removeprefix("MESH:"), entity)
        for item in document.get("relations", ()):
            infons = item.get("infons", {})
            ends = [
                known.get(str(role.get("identifier") or "").removeprefix("MESH:"))
                for key in ("role1", "role2")
                if isinstance(role := infons.get(key), dict)
            ]
            kind_name = str(infons.get("type", "")).lower()
            relation, polarity = _PUBTATOR.get(kind_name, ("associated_with", NEUTRAL))
            score = str(infons.get("score", ""))
            if len(ends) == 2 and ends[0] and ends[1]:
                yield Fact(
                    ends[0], relation, ends[1], polarity,
                    confidence=min(float(score), 1.0) if re.fullmatch(r"\d*\.\d+", score) else 0.8,
                    pmid=str(document.get("id", "")) or None, year=year,
                    title=parts[0] if parts else "", text=" ".join(parts), source="PubTator3",
                )  # fmt: skip


def _documents(path: Path, text: str) -> Iterator[dict[str, Any]]:
    try:
        read = json.loads(text)
    except ValueError:
        try:  # a document per line
            read = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise InputError(f"{path}: invalid JSON ({error})") from None
    if isinstance(read, dict):
        read = read.get("PubTator3") or read.get("documents") or [read]
    if not isinstance(read, list) or not all(isinstance(d, dict) for d in read):
        raise InputError(f"{path}: expected BioC-JSON documents with passages and relations")
    yield from read


_SEMANTIC = {
    "gngm": T.GENE, "aapp": T.PROTEIN, "enzy": T.PROTEIN, "rcpt": T.PROTEIN, "dsyn": T.DISEASE,
    "neop": T.DISEASE, "mobd": T.DISEASE, "patf": T.DISEASE, "sosy": T.DISEASE, "orch": T.CHEMICAL,
    "phsu": T.CHEMICAL, "inch": T.CHEMICAL, "hops": T.CHEMICAL, "clnd": T.TREATMENT,
    "topp": T.TREATMENT, "cell": T.CELL_TYPE, "bpoc": T.TISSUE_REGION, "tisu": T.TISSUE_REGION,
    "orgf": T.BIOLOGICAL_PROCESS, "celf": T.BIOLOGICAL_PROCESS, "moft": T.BIOLOGICAL_PROCESS,
    "phsf": T.BIOLOGICAL_PROCESS, "genf": T.BIOLOGICAL_PROCESS,
}  # fmt: skip
_PREDICATES: dict[str, _Sign] = {
    "TREATS": ("treats", NEGATIVE), "PREVENTS": ("treats", NEGATIVE),
    "CAUSES": ("promotes", POSITIVE), "PREDISPOSES": ("promotes", POSITIVE),
    "PRODUCES": ("secretes", POSITIVE), "AUGMENTS": ("upregulates", POSITIVE),
    "STIMULATES": ("activates", POSITIVE), "INHIBITS": ("inhibits", NEGATIVE),
    "DISRUPTS": ("inhibits", NEGATIVE), "AFFECTS": ("affects", NEUTRAL),
    "COMPLICATES": ("promotes", POSITIVE), "INTERACTS_WITH": ("binds", NEUTRAL),
    "ASSOCIATED_WITH": ("associated_with", NEUTRAL), "COEXISTS_WITH": ("associated_with", NEUTRAL),
}  # fmt: skip


def semmeddb(path: Path) -> Iterator[Fact]:
    """Yield facts from SemMedDB's PREDICATION table (CSV with at least 12 columns, no header).

    Years come from its CITATIONS table (`--years`); otherwise they are estimated from the PMID.
    """
    with open_text(path) as stream:
        for number, row in enumerate(csv.reader(stream, escapechar="\\"), 1):
            if number == 1 and row and row[0].upper() == "PREDICATION_ID":
                continue
            if len(row) < 12 or not row[2].isdigit():
                raise InputError(
                    f"{path}, row {number}: expected SemMedDB PREDICATION columns "
                    "(PREDICATION_ID, SENTENCE_ID, PMID, PREDICATE, SUBJECT_CUI, ...)"
                )
            denied = row[3].startswith("NEG_")
            relation, polarity = _PREDICATES.get(row[3].removeprefix("NEG_"), ("", NEUTRAL))
            if not relation or "0" in (row[7], row[11]):  # ISA, LOCATION_OF; overly general terms
                continue
            head, tail = (
                Entity(f"umls:{row[at].split('|')[0]}", row[at + 1].split("|")[0],
                       _SEMANTIC.get(row[at + 2], T.OTHER))
                for at in (4, 8)
            )  # fmt: skip
            yield Fact(head, relation, tail, polarity, denied, confidence=0.7, pmid=row[2],
                       source="SemMedDB")  # fmt: skip


_INDRA: dict[str, _Sign] = {
    "Activation": ("activates", POSITIVE), "Inhibition": ("inhibits", NEGATIVE),
    "IncreaseAmount": ("upregulates", POSITIVE), "DecreaseAmount": ("downregulates", NEGATIVE),
    "Phosphorylation": ("phosphorylates", NEUTRAL), "Complex": ("binds", NEUTRAL),
    "Ubiquitination": ("degrades", NEGATIVE), "Association": ("associated_with", NEUTRAL),
    "Gef": ("activates", POSITIVE), "Gap": ("inhibits", NEGATIVE),
}  # fmt: skip
_NAMESPACES = {
    "HGNC": ("hgnc", T.GENE), "EGID": ("ncbigene", T.GENE), "UP": ("uniprot", T.PROTEIN),
    "FPLX": ("fplx", T.PROTEIN), "CHEBI": ("chebi", T.CHEMICAL), "PUBCHEM": ("pubchem", T.CHEMICAL),
    "GO": ("go", T.BIOLOGICAL_PROCESS), "MESH": ("mesh", T.OTHER), "DOID": ("doid", T.DISEASE),
}  # fmt: skip


def indra(path: Path) -> Iterator[Fact]:
    """Yield facts from a JSON list of INDRA statements (agents, evidence, belief)."""
    with open_text(path) as stream:
        try:
            read = json.load(stream)
        except ValueError as error:
            raise InputError(f"{path}: invalid JSON ({error})") from None
    statements = read.get("statements", read) if isinstance(read, dict) else read
    if isinstance(statements, dict):  # keyed by hash, as in the INDRA database's responses
        statements = list(statements.values())
    if not isinstance(statements, list) or not all(isinstance(s, dict) for s in statements):
        raise InputError(f"{path}: expected a list of INDRA statements")
    for statement in statements:
        ends = _indra_agents(statement)
        if len(ends) < 2:
            continue
        kind = str(statement.get("type", ""))
        relation, polarity = _INDRA.get(kind, ("regulates", NEUTRAL))
        for evidence in statement.get("evidence") or [{}]:
            epistemics = evidence.get("epistemics", {})
            pmid = str(evidence.get("pmid") or evidence.get("text_refs", {}).get("PMID") or "")
            yield Fact(
                ends[0], relation, ends[1], polarity,
                negated=bool(epistemics.get("negated")),
                speculative=bool(epistemics.get("hypothesis")),
                confidence=min(max(float(statement.get("belief", 0.8)), 0.0), 1.0),
                pmid=pmid if pmid.isdigit() else None,
                doi=evidence.get("text_refs", {}).get("DOI"),
                text=evidence.get("text") or "", source="INDRA",
            )  # fmt: skip


def _indra_agents(statement: dict[str, Any]) -> list[Entity]:
    agents = statement.get("members") or [
        statement.get(key) for key in ("subj", "enz", "gef", "gap", "obj", "sub", "ras")
    ]
    found = []
    for agent in agents:
        if not isinstance(agent, dict):
            continue
        refs = agent.get("db_refs", {})
        name = str(agent.get("name", ""))
        space = next((space for space in _NAMESPACES if space in refs), None)
        if space is None:
            found.append(Entity(f"name:{name}", name, T.OTHER))
        elif refs.get("EGID"):
            found.append(gene(name, str(refs["EGID"])))
        elif space == "HGNC":
            found.append(gene(name))
        else:
            scheme, kind = _NAMESPACES[space]
            found.append(Entity(f"{scheme}:{str(refs[space]).removeprefix('CHEBI:')}", name, kind))
    return found


Reader = Callable[[Path], Iterator[Fact]]
FORMATS: dict[str, Reader] = {
    "trrust": trrust, "signor": signor, "ctd": ctd, "hetionet": hetionet, "pubtator": pubtator,
    "semmeddb": semmeddb, "indra": indra,
}  # fmt: skip
