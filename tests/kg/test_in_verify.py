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
    "but": "FABP5 binds MYC but TGFB1 promotes invasion.",
    "where": "Metformin does not inhibit FABP5 in T24 cells.",
    "patients": "Cisplatin induces apoptosis in patients with bladder cancer.",
    "unlike": "Unlike IL6, CCL21 activates TLS in mice.",
    "prevents": "Metformin prevents FABP5 from activating MYC in cells.",
    "hardly": "Contrary to what was thought, CD44 hardly promotes invasion.",
    "rather": "MYC promotes stemness rather than metastasis of cells.",
    "without": "MYC promotes stemness without affecting apoptosis of cells.",
    "later": "CCL2 promotes stemness and MYC inhibits apoptosis of cells.",
    "myth": "It is a myth that FGF2 promotes invasion of cells.",
    "kin": "The IL6 target TGFB1 promotes stemness of cells.",
    "list": "FABP5 and FABP4 promote angiogenesis.",
    "on": "FGF2 binds CD44 and then promotes stemness.",
    "ruled": "FABP5 was thought to promote stemness, but our experiments ruled this out.",
    "claims": "Earlier claims that CD44 drives metastasis could not be reproduced.",
    "after": "IL6 production fell after metformin reduced MYC in mice.",
    "what": "EGFR antagonizes what MYC activates, namely angiogenesis.",
    "toward": "Resistance to cisplatin was promoted by ABCB1 in vitro.",
    "against": "FGF2 confers resistance to cisplatin in mice.",
    "amount": "Nivolumab induces an increase in CD8 T cells.",
    "makes up": "FABP5 compensates for the loss of FABP4 in mice.",
}
TEXT = " ".join(S.values())

INVENTED = [
    # (head, relation text, relation, tail, polarity, negated, quote)
    ("FABP5", "promote", "promotes", "stemness", "positive", False, S["ruled"]),
    ("CD44", "drives", "promotes", "metastasis", "positive", False, S["claims"]),
    ("IL6", "reduced", "downregulates", "MYC", "negative", False, S["after"]),
    ("EGFR", "activates", "activates", "angiogenesis", "positive", False, S["what"]),
    ("ABCB1", "promoted", "promotes", "cisplatin", "positive", False, S["toward"]),
    ("FGF2", "confers", "promotes", "cisplatin", "positive", False, S["against"]),
    ("IL6", "activates", "activates", "TLS", "positive", False, S["unlike"]),
    ("FABP5", "activating", "activates", "MYC", "positive", False, S["prevents"]),
    ("CD44", "promotes", "promotes", "invasion", "positive", False, S["hardly"]),
    ("MYC", "promotes", "promotes", "metastasis", "positive", False, S["rather"]),
    ("MYC", "promotes", "promotes", "apoptosis", "positive", False, S["without"]),
    ("CCL2", "promotes", "promotes", "apoptosis", "positive", False, S["later"]),
    ("FGF2", "promotes", "promotes", "invasion", "positive", False, S["myth"]),
    ("IL6", "promotes", "promotes", "stemness", "positive", False, S["kin"]),
    ("HeLa", "activates", "activates", "TLS", "positive", False, S["two"]),
    ("CXCL13", "activates", "activates", "bladder cancer", "positive", False, S["two"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, S["but"]),
    ("metformin", "inhibit", "inhibits", "T24", "negative", True, S["where"]),
    ("cisplatin", "induces", "promotes", "bladder cancer", "positive", False, S["patients"]),
    ("CXCL13", "activates", "activates", "TLS", "positive", False, "OPRM1"),
    ("CXCL13", "activates", "activates", "TLS", "positive", False, S["measured"]),
    ("CXCL13", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "overall survival", "positive", False, S["fabp5"]),
    ("FABP5", "inhibits", "inhibits", "invasion", "negative", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "negative", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", True, S["fabp5"]),
    ("invasion", "promotes", "promotes", "FABP5", "positive", False, S["fabp5"]),
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, "FABP5 promotes invasion"),
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, "promotes"),
    ("FABP5", "is mutated in", "mutated_in", "bladder cancer", "neutral", False, S["fabp5"]),
    ("FABP4", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "positive", False,
     S["cxcl13"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "negative", False,
     S["cxcl13"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "neutral", False,
     "associated with overall survival in MIBC"),
    ("CXCL13", "not associated with", "associated_with", "overall survival", "neutral", False,
     S["cxcl13"]),
    ("CXCL13", "associated with", "associated_with", "recurrence", "neutral", True, S["cxcl13"]),
    ("CXCL13", "promotes", "promotes", "overall survival", "positive", False, S["cxcl13"]),
    ("CCL2", "inhibits", "inhibits", "metformin", "negative", False, S["metformin"]),
    ("metformin", "inhibits", "inhibits", "CCL2", "positive", False, S["metformin"]),
    ("metformin", "inhibits", "inhibits", "CCL2", "neutral", True, S["metformin"]),
    ("metformin", "activates", "activates", "CCL2", "positive", False, S["metformin"]),
    ("TGFB1", "attenuates", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("TGFB1", "reduces", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("PD-L1", "reduces", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("CD274", "reduces", "downregulates", "metastasis", "negative", False, S["blockade"]),
    ("PD-L1 blockade", "reduces", "downregulates", "metastasis", "positive", False,
     S["blockade"]),
    ("bupivacaine", "enhances", "upregulates", "inflammation", "positive", False,
     S["bupivacaine"]),
    ("bupivacaine", "enhances", "upregulates", "inflammation", "positive", False,
     "bupivacaine enhances inflammation."),
    ("inflammation", "enhances", "upregulates", "bupivacaine", "positive", True,
     S["bupivacaine"]),
    ("FGFR3", "promotes", "promotes", "cell migration", "positive", False, S["asked"]),
    ("FGFR3", "promotes", "promotes", "migration", "positive", False,
     "FGFR3 promotes migration of cells."),
    ("FGFR3", "promotes", "promotes", "migration", "positive", True, S["asked"]),
    ("FABP4", "associated with", "associated_with", "overall survival", "negative", False,
     S["low"]),
    ("FABP4", "associated with", "promotes", "overall survival", "positive", False, S["low"]),
    ("FABP4", "causes", "promotes", "overall survival", "positive", False, S["low"]),
    ("FABP4", "associated with", "associated_with", "overall survival", "neutral", True, S["low"]),
    ("FABP5", "associated with", "associated_with", "overall survival", "positive", False,
     S["low"]),
    ("AKT1", "activated", "activates", "MTOR", "positive", False, S["passive"]),
    ("MTOR", "activated", "activates", "AKT1", "negative", False, S["passive"]),
    ("MTOR", "inhibited", "inhibits", "AKT1", "negative", False, S["passive"]),
    ("MTOR", "activated", "activates", "bladder", "positive", False, S["passive"]),
    ("OPRM1", "promotes", "promotes", "metastasis", "positive", False, S["measured"]),
    ("OPRM1", "measured", "associated_with", "bladder cancer", "neutral", False, S["measured"]),
    ("ADRM1", "reduces", "downregulates", "migration", "negative", False, S["knockdown"]),
    ("migration", "reduces", "downregulates", "ADRM1", "negative", False, S["knockdown"]),
    ("ADRM1", "reduces", "downregulates", "migration", "positive", True, S["knockdown"]),
    ("CD8 T cell", "correlates with", "correlates_with", "prognosis", "negative", False,
     S["cd8"]),
    ("CD8 T cell", "correlates with", "promotes", "prognosis", "positive", False, S["cd8"]),
    ("CD4 T cell", "correlates with", "correlates_with", "prognosis", "positive", False,
     S["cd8"]),
    ("EGFR", "drives", "promotes", "progression", "positive", False, S["if"]),
    ("EGFR", "drives", "promotes", "gefitinib", "positive", False, S["if"]),
    ("gefitinib", "drives", "promotes", "progression", "positive", False, S["if"]),
    ("BCG", "predicts", "predicts", "progression-free survival", "positive", False, S["butnot"]),
    ("BCG", "predicts", "predicts", "disease-free survival", "neutral", True, S["butnot"]),
    ("FGFR3", "Inhibition", "inhibits", "erdafitinib", "negative", False, S["nominal"]),
    ("erdafitinib", "Inhibition", "activates", "mice", "positive", False, S["nominal"]),
    ("EGFR", "suppress", "inhibits", "metastasis", "negative", False, S["inhibitor"]),
    ("EGFR inhibitors", "suppress", "inhibits", "metastasis", "positive", False, S["inhibitor"]),
    ("metastasis", "suppress", "inhibits", "EGFR inhibitors", "negative", False, S["inhibitor"]),
    ("CCR7", "drives", "promotes", "metastasis", "positive", False, S["unlikely"]),
    ("CCR7", "drives", "promotes", "metastasis", "positive", False, "CCR7 drives metastasis."),
    ("metformin", "inhibit", "inhibits", "IL6", "negative", False, S["plan"]),
    ("CXCL12", "promote", "promotes", "metastasis", "positive", False, S["question"]),
    ("TROP2", "expressed", "promotes", "urothelial carcinoma", "positive", False, S["expressed"]),
    ("TROP2", "promotes", "promotes", "urothelial carcinoma", "positive", False, S["expressed"]),
    ("MET", "promotes", "promotes", "invasion", "positive", False, S["refuted"]),
    ("MET", "promotes", "promotes", "invasion", "positive", False, "MET promotes invasion."),
    ("FABP5", "promotes", "promotes", "overall survival", "positive", False,
     S["fabp5"] + " " + S["cxcl13"]),
    ("FABP5", "inhibits", "inhibits", "CCL2", "negative", False, TEXT),
    ("FABP5", "compensates for", "compensates_for", "FABP4", "negative", False, S["makes up"]),
]  # fmt: skip

HONEST = [
    ("FABP5", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("E-FABP", "promotes", "promotes", "invasion", "positive", False, S["fabp5"]),
    ("CXCL13", "associated with", "associated_with", "overall survival", "neutral", True,
     S["cxcl13"]),
    ("CXCL13", "not associated with", "associated_with", "overall survival", "neutral", True,
     S["cxcl13"]),
    ("metformin", "inhibits", "inhibits", "CCL2", "negative", False, S["metformin"]),
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
    ("BCG", "predicts", "predicts", "disease-free survival", "positive", False, S["butnot"]),
    ("BCG", "predicts", "predicts", "progression-free survival", "neutral", True, S["butnot"]),
    ("erdafitinib", "Inhibition", "inhibits", "FGFR3", "negative", False, S["nominal"]),
    ("EGFR inhibitors", "suppress", "inhibits", "metastasis", "negative", False, S["inhibitor"]),
    ("TACSTD2", "expressed in", "expressed_in", "urothelial carcinoma", "neutral", False,
     S["expressed"]),
    ("CXCL13", "activates", "activates", "TLS", "positive", False, S["two"]),
    ("HeLa", "secrete", "secretes", "CXCL13", "positive", False, S["two"]),
    ("metformin", "inhibit", "inhibits", "FABP5", "negative", True, S["where"]),
    ("FABP5", "promote", "promotes", "angiogenesis", "positive", False, S["list"]),
    ("FABP4", "promote", "promotes", "angiogenesis", "positive", False, S["list"]),
    ("FGF2", "promotes", "promotes", "stemness", "positive", False, S["on"]),
    ("MYC", "promotes", "promotes", "stemness", "positive", False, S["rather"]),
    ("MYC", "inhibits", "inhibits", "apoptosis", "negative", False, S["later"]),
    ("CCL21", "activates", "activates", "TLS", "positive", False, S["unlike"]),
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
    only = _read(HONEST[11]).statements[0]
    assert only.confidence == 0.9
