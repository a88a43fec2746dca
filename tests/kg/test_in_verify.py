"""A model's triples against their own quotation: what is invented, turned or denied is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kg.extract.verify import UNGROUNDED
from tests.kg import test_in_chat as chat
from tests.kg.test_in_chat import Model, _triple

S = {
    "fabp5": "FABP5 promotes invasion of bladder cancer cells.",
    "cxcl13": "CXCL13 was not associated with overall survival in MIBC.",
    "metformin": "Metformin inhibits CCL2 secretion by M2 macrophages.",
    "blockade": "PD-L1 blockade reduces metastasis, whereas TGFB1 attenuates the response to it.",
    "bupivacaine": "There is no evidence that bupivacaine enhances inflammation.",
    "asked": "We investigated whether FGFR3 promotes migration of cells.",
    "low": "Low FABP4 expression is associated with shorter overall survival.",
    "passive": "AKT1 is activated by MTOR in urothelial carcinoma.",
    "measured": "OPRM1 expression was measured by qPCR in 40 patients.",
    "knockdown": "ADRM1 knockdown reduces migration of cancer cells.",
    "cd8": "High CD8 T cell density correlates with better prognosis.",
    "if": "If EGFR drives progression, gefitinib should help.",
    "butnot": "BCG treatment predicts disease-free survival but not progression-free survival.",
    "nominal": "Inhibition of FGFR3 by erdafitinib was seen in mice.",
    "inhibitor": "EGFR inhibitors suppress metastasis in lung cancer.",
    "unlikely": "It is unlikely that CCR7 drives metastasis.",
    "plan": "Strategies to inhibit IL6 with metformin are needed.",
    "question": "Does CXCL12 promote metastasis of bladder cancer?",
    "expressed": "TROP2 is expressed in urothelial carcinoma.",
    "refuted": "Our data refute the notion that MET promotes invasion.",
    "two": "HeLa cells secrete CXCL13, and CXCL13 activates TLS in bladder cancer.",
    "where": "Metformin does not inhibit FABP5 in T24 cells.",
    "patients": "Cisplatin induces apoptosis in patients with bladder cancer.",
    "unlike": "Unlike IL6, CCL21 activates TLS in mice.",
    "prevents": "Metformin prevents FABP5 from activating MYC in cells.",
    "rather": "MYC promotes stemness rather than metastasis of cells.",
    "later": "CCL2 promotes stemness and MYC inhibits apoptosis of cells.",
    "kin": "The IL6 target TGFB1 promotes stemness of cells.",
    "list": "FABP5 and FABP4 promote angiogenesis.",
    "on": "FGF2 binds CD44 and then promotes stemness.",
    "ruled": "FABP5 was thought to promote stemness, but our experiments ruled this out.",
    "after": "IL6 production fell after metformin reduced MYC in mice.",
    "what": "EGFR antagonizes what MYC activates, namely angiogenesis.",
    "toward": "Resistance to cisplatin was promoted by ABCB1 in vitro.",
    "against": "FGF2 confers resistance to cisplatin in mice.",
    "amount": "Nivolumab induces an increase in CD8 T cells.",
    "worse": "Cisplatin is associated with worse recurrence in patients.",
    "makes up": "FABP5 compensates for the loss of FABP4 in mice.",
}
TEXT = " ".join(S.values())

INVENTED = [
    # (head, relation text, relation, tail, polarity, negated, quote)
    ("FABP5", "promote", "promotes", "stemness", "positive", False, S["ruled"]),
    ("IL6", "reduced", "downregulates", "MYC", "negative", False, S["after"]),
    ("EGFR", "activates", "activates", "angiogenesis", "positive", False, S["what"]),
    ("ABCB1", "promoted", "promotes", "cisplatin", "positive", False, S["toward"]),
    ("IL6", "activates", "activates", "TLS", "positive", False, S["unlike"]),
    ("FABP5", "activating", "activates", "MYC", "positive", False, S["prevents"]),
    ("MYC", "promotes", "promotes", "metastasis", "positive", False, S["rather"]),
    ("CCL2", "promotes", "promotes", "apoptosis", "positive", False, S["later"]),
    ("IL6", "promotes", "promotes", "stemness", "positive", False, S["kin"]),
    ("HeLa", "activates", "activates", "TLS", "positive", False, S["two"]),
    ("CXCL13", "activates", "activates", "bladder cancer", "positive", False, S["two"]),
    ("cisplatin", "induces", "promotes", "bladder cancer", "positive", False, S["patients"]),
    ("CXCL13", "activates", "activates", "TLS", "positive", False, "OPRM1"),
    ("CXCL13", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "negative", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", True, S["fabp5"]),
    ("invasion", "promotes", "promotes", "FABP5", "positive", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, "FABP5 promotes invasion"),
    ("FABP5", "is mutated in", "mutated_in", "bladder cancer", "neutral", False, S["fabp5"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "positive", False,
     S["cxcl13"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "neutral", False,
     "associated with overall survival in MIBC"),
    ("CXCL13", "not associated with", "associated_with", "overall survival", "neutral", False,
     S["cxcl13"]),
    ("CCL2", "inhibits", "inhibits", "metformin", "negative", False, S["metformin"]),
    ("metformin", "inhibits", "inhibits", "CCL2", "positive", False, S["metformin"]),
    ("TGFB1", "attenuates", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("PD-L1", "reduces", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("PD-L1 blockade", "reduces", "downregulates", "metastasis", "positive", False,
     S["blockade"]),
    ("bupivacaine", "enhances", "upregulates", "inflammation", "positive", False,
     S["bupivacaine"]),
    ("bupivacaine", "enhances", "upregulates", "inflammation", "positive", False,
     "bupivacaine enhances inflammation."),
    ("FGFR3", "promotes", "promotes", "migration", "positive", False,
     "FGFR3 promotes migration of cells."),
    ("FABP4", "associated with", "associated_with", "overall survival", "negative", False,
     S["low"]),
    ("FABP4", "causes", "promotes", "overall survival", "positive", False, S["low"]),
    ("FABP5", "associated with", "associated_with", "overall survival", "positive", False,
     S["low"]),
    ("AKT1", "activated", "activates", "MTOR", "positive", False, S["passive"]),
    ("MTOR", "inhibited", "inhibits", "AKT1", "negative", False, S["passive"]),
    ("OPRM1", "measured", "associated_with", "bladder cancer", "neutral", False, S["measured"]),
    ("ADRM1", "reduces", "downregulates", "migration", "negative", False, S["knockdown"]),
    ("CD8 T cell", "correlates with", "promotes", "prognosis", "positive", False, S["cd8"]),
    ("EGFR", "drives", "promotes", "progression", "positive", False, S["if"]),
    ("BCG", "predicts", "predicts", "progression-free survival", "positive", False, S["butnot"]),
    ("FGFR3", "Inhibition", "inhibits", "erdafitinib", "negative", False, S["nominal"]),
    ("EGFR", "suppress", "inhibits", "metastasis", "negative", False, S["inhibitor"]),
    ("CCR7", "drives", "promotes", "metastasis", "positive", False, S["unlikely"]),
    ("metformin", "inhibit", "inhibits", "IL6", "negative", False, S["plan"]),
    ("CXCL12", "promote", "promotes", "metastasis", "positive", False, S["question"]),
    ("TROP2", "expressed", "promotes", "urothelial carcinoma", "positive", False, S["expressed"]),
    ("MET", "promotes", "promotes", "invasion", "positive", False, S["refuted"]),
    ("FABP5", "promotes", "promotes", "overall survival", "positive", False,
     S["fabp5"] + " " + S["cxcl13"]),
    ("FABP5", "inhibits", "inhibits", "CCL2", "negative", False, TEXT),
    ("FABP5", "compensates for", "compensates_for", "FABP4", "negative", False, S["makes up"]),
]  # fmt: skip

HONEST = [
    ("cisplatin", "associated with", "associated_with", "recurrence", "positive", False,
     S["worse"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("E-FABP", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "neutral", True,
     S["cxcl13"]),
    ("PD-L1 blockade", "reduces", "downregulates", "metastasis", "negative", False,
     S["blockade"]),
    ("bupivacaine", "enhances", "upregulates", "inflammation", "neutral", True,
     S["bupivacaine"]),
    ("FABP4", "associated with", "associated_with", "overall survival", "positive", False,
     S["low"]),
    ("MTOR", "activated", "activates", "AKT1", "positive", False, S["passive"]),
    ("ADRM1", "reduces", "promotes", "migration", "positive", False, S["knockdown"]),
    ("CD8 T cell", "correlates with", "correlates_with", "prognosis", "positive", False,
     S["cd8"]),
    ("prognosis", "correlates with", "correlates_with", "CD8 T cells", "positive", False,
     S["cd8"]),
    ("BCG", "predicts", "predicts", "progression-free survival", "neutral", True, S["butnot"]),
    ("erdafitinib", "Inhibition", "inhibits", "FGFR3", "negative", False, S["nominal"]),
    ("EGFR inhibitors", "suppress", "inhibits", "metastasis", "negative", False, S["inhibitor"]),
    ("TACSTD2", "expressed in", "expressed_in", "urothelial carcinoma", "neutral", False,
     S["expressed"]),
    ("HeLa", "secrete", "secretes", "CXCL13", "positive", False, S["two"]),
    ("metformin", "inhibit", "inhibits", "FABP5", "negative", True, S["where"]),
    ("FABP4", "promote", "promotes", "angiogenesis", "positive", False, S["list"]),
    ("FGF2", "promotes", "promotes", "stemness", "positive", False, S["on"]),
    ("MYC", "inhibits", "inhibits", "apoptosis", "negative", False, S["later"]),
    ("nivolumab", "induces", "upregulates", "CD8 T cell", "positive", False, S["amount"]),
    ("metformin", "reduced", "downregulates", "MYC", "negative", False, S["after"]),
    ("FGF2", "confers resistance to", "confers_resistance_to", "cisplatin", "negative", False,
     S["against"]),
    ("FABP5", "compensates for", "compensates_for", "FABP4", "positive", False, S["makes up"]),
]  # fmt: skip


def _read(row: tuple[Any, ...]) -> Any:
    names = ("head", "relation_text", "relation", "tail", "polarity", "negated", "evidence")
    triple = _triple(**dict(zip(names, row, strict=True)))
    results: list[Any] = []
    extractor = chat.ChatExtractor(
        chat.ontology(), Model(json.dumps({"triples": [triple]})), model=chat.PRICED
    )
    extractor.extract([chat._chunk(TEXT)], lambda _chunk, result: results.append(result))
    return results[0]


@pytest.mark.parametrize("row", INVENTED, ids=lambda row: " ".join(map(str, row[:6]))[:70])
def test_what_a_quotation_does_not_say_is_dropped_with_its_reason(row: tuple[Any, ...]) -> None:
    result = _read(row)
    assert result.statements == []
    assert result.error is None
    assert set(result.dropped) <= UNGROUNDED
    assert sum(result.dropped.values()) == 1


@pytest.mark.parametrize("row", HONEST, ids=lambda row: " ".join(map(str, row[:6]))[:70])
def test_what_a_quotation_says_is_kept(row: tuple[Any, ...]) -> None:
    result = _read(row)
    assert len(result.statements) == 1, result.dropped


def test_agreement_of_two_readers_is_believed_more() -> None:
    both = _read(HONEST[0]).statements[0]
    assert both.confidence > 0.9
    only = _read(next(row for row in HONEST if row[0] == "prognosis")).statements[0]
    assert only.confidence == 0.9
