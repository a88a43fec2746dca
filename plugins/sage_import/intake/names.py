"""Vocabulary of column names: outcome, time, identifier, baseline, and after baseline."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache


def word_set(text: str) -> frozenset[str]:
    """Split a text into its set of words."""
    return frozenset(text.split())


TRANSLATIONS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"[üu]e?berleb", "survival"), (r"nachbeobacht|nachsorge|verlaufskontroll", "follow up"),
        (r"verst[eo]rb|gestorb|todes|sterbe|^tod$|^exitus$|ableben", "death"),
        (r"rezidiv", "recurrence"), (r"zensier", "censored"), (r"geburt", "birth"),
        (r"^vital", "vital"), (r"status$", "status"),
        (r"geschlecht", "sex"), (r"^alter$|lebensalter", "age"), (r"stadium", "stage"),
        (r"grading", "grade"), (r"diagnos(e|tik)", "diagnosis"),
        (r"letzt(e|er|es|en|em)?$", "last"), (r"kontakt|vorstellung", "contact"),
        (r"datum$", "date"), (r"zeit(raum)?$|dauer$", "time"), (r"^tage?n?$", "days"),
        (r"wochen?$", "weeks"), (r"^monate?n?$", "months"), (r"^jahre?n?$", "years"),
        (r"^patienten?", "patient"), (r"(nummer|^nr)$", "number"), (r"ereignis", "event"),
        (r"freies?$", "free"), (r"gesamt", "overall"), (r"tumor", "tumor"), (r"beginn$", "start"),
        (r"zystektomie", "cystectomy"), (r"raucher", "smoking"), (r"lebend$|^lebt$", "alive"),
        (r"^decede?e?s?$|^deces$|^mort$", "death"), (r"^vivante?$", "alive"),
        (r"^suivi$", "follow up"), (r"^survie$", "survival"),
        (r"^(recidive|rechute)", "recurrence"), (r"^naissance$", "birth"), (r"^sexe$", "sex"),
        (r"^stade$", "stage"), (r"^dernieres?$", "last"), (r"^nouvelles$", "contact"),
        (r"^visite$", "visit"), (r"^(delai|duree)$", "time"), (r"^jours?$", "days"),
        (r"^semaines?$", "weeks"), (r"^mois$", "months"), (r"^(ans|annees?)$", "years"),
        (r"^evenement$", "event"), (r"^statut$", "status"), (r"^debut$", "start"),
        (r"^chirurgie$", "surgery"), (r"^traitements?$", "treatment"), (r"^tabac$", "smoking"),
        (r"^chimio", "chemo"), (r"^radiotherapie$", "radiotherapy"), (r"^maladie$", "disease"),
        (r"^identifiant$", "id"), (r"^dossier$", "number"), (r"^antecedents?$", "history"),
    )
)  # fmt: skip
"""German and French header words and parts of compounds, translated to English."""
STEMS: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = tuple(
    (name, tuple(map(word_set, spellings)))
    for name, spellings in (
        ("CSS", ("css", "cancer specific", "tumor specific")),
        ("DSS", ("dss", "disease specific")),
        ("PFI", ("pfi",)),
        ("PFS", ("pfs", "progression free")),
        ("DFI", ("dfi",)),
        ("DFS", ("dfs", "disease free", "sans disease")),
        ("RFS", ("rfs", "recurrence free", "relapse free")),
        ("MFS", ("mfs", "dmfs", "metastasis free", "tdm", "edm")),
        ("EFS", ("efs", "event free")),
        ("TTP", ("ttp",)),
        ("RFS", ("recurrence", "recurred", "relapse", "relapsed")),
        ("PFS", ("progression", "progressed")),
    )
)
OF_DEATH = word_set("os survival vital death dead died deceased alive oas futime fustat survtime")
"""Words that mean overall survival unless another outcome is named."""
LABELS = {
    "OS": "Overall survival",
    "CSS": "Cancer-specific survival",
    "DSS": "Disease-specific survival",
    "PFI": "Progression-free interval",
    "PFS": "Progression-free survival",
    "DFI": "Disease-free interval",
    "DFS": "Disease-free survival",
    "RFS": "Recurrence-free survival",
    "MFS": "Metastasis-free survival",
    "EFS": "Event-free survival",
    "TTP": "Time to progression",
}
DEATHS = frozenset({"OS", "CSS", "DSS"})
UNITS = {
    "days": word_set("day days d"),
    "weeks": word_set("week weeks wk wks"),
    "months": word_set("month months mo mos mths mon"),
    "years": word_set("year years yr yrs"),
}
TIME = word_set("time times survtime futime duration durations followup fu tte").union(
    *UNITS.values()
) - {"d"}
NO_TIME = word_set(
    "age birth began smoked smoking pack stopped diagnosis initial form completion upload batch "
    "treatment therapy collection procurement radiation drug dose sample response submission "
    "number count exposure dx additional surgery dcc shipment"
)
EVENT = word_set("status event events dead death deceased died vital alive fustat censored")
NO_EVENT = word_set(
    "new classifier predicted prediction risk score menopause menopausal nodal er pr her2 her "
    "mutation mutational smoking cause date days type site margin"
)
OUTCOME = re.compile(
    r"\b(death|dead|died|deceased?|vital|alive|surviv\w*|censored|recurr\w*|relapse\w*|"
    r"progress(ed|ion)|new tumor event|last (contact|follow|known|seen|visit)|follow ?ups?|lost to|"
    r"cause of|respon(se|der)s?|recist|outcome|(tumor|cancer|neoplasm) status|os|pfs|pfi|dfs|dfi|"
    r"dss|css|rfs|mfs|efs|success|complete(d)? response|lfu|days to (new|last)|event)\b"
)
AFTER = re.compile(
    r"\b(adjuvant|post ?op\w*|postoperative|subsequent|salvage|second line|additional|"
    r"radiation|radiotherapy|chemo\w*|treated|treatments?|therapy|hormonal|immunotherapy|cycles?|doses?|"
    r"complications?|readmission|toxicity|visits?|immunotherapie)\b"
)
BEFORE = re.compile(r"\b(neo ?adjuvant|prior|previous|history|pre ?op\w*|preoperative|baseline)\b")
AT_BASELINE = re.compile(
    r"\b(age|sex|gender|race|ethnicity|"
    r"(at|initial) diagnosis|baseline|menopausal? (status|state)|"
    r"menostat|histolog(y|ic|ical) (type|grade)|"
    r"(tumou?r|pathologic(al)?|clinical|ajcc|tnm|tmn|figo|n|histologic(al)?) ?(stage|grade)|"
    r"stage|grade|(ajcc )?(pathologic(al)?|path|clinical) [tnm]( stage)?|y?[pc]?[tn]|"
    r"cancer type( detailed)?)\b"
)
NOT_BASELINE = re.compile(
    r"\b(samples?|specimen|began|last|follow|relapse|recurr\w*|death|progress\w*|at event)\b"
)
ADMINISTRATIVE = re.compile(
    r"\b(form completion|upload|uuid|batch|file|barcode|system version|vial|consent|"
    r"collection indicator|registration|report|dcc|birth)\b"
)
IDENTIFIER = {
    word: weight
    for weight, text in (
        (5, "patientid"),
        (4, "patient subject barcode pid mrn participant"),
        (3, "case submitter id ids sampleid gsm pseudonym"),
        (2, "sample geo accession"),
        (1, "number nr numero"),
    )
    for word in text.split()
}
BIRTH = re.compile(r"\b(birth|dob|born)\b")
START = re.compile(
    r"\b(diag\w*|dx|surg\w*|operation|op|cystectomy|resection|turb?t?|biopsy|random\w*|enrol\w*|"
    r"entry|inclusion|start|baseline|registration|treatment|sampling)\b"
)
LAST = re.compile(r"\b(last|lfu|fu|follow ?up|followup|contact|seen|censored|end|status)\b")
DEATH = re.compile(r"\b(death|dead|died|deceased?|dod)\b")
CONTACT = re.compile(r"\blast (contact|follow|fu|seen|known|visit)|\bfollow ?up\b")


@lru_cache(maxsize=1 << 16)
def tokens(name: str) -> tuple[str, ...]:
    """Return the words in a column name in lower case, translated from German and French.

    TNM categories such as `pT` are single words.
    """
    name = re.sub(r"(?<![A-Za-z])y?[pc][TNM](?![a-z])", lambda match: match[0].casefold(), name)
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", name.rpartition(".")[2] if is_path(name) else name)
    found: list[str] = []
    for word in re.findall(r"[^\W\d_]+|\d+", _unaccented(split.casefold())):
        if word == "cens" or word.startswith("censor"):
            found.append("censored")
            continue
        parts = [(match.start(), to) for sign, to in TRANSLATIONS if (match := sign.search(word))]
        found += " ".join(to for _, to in sorted(parts)).split() if parts else [word]
    return tuple(found)


def _unaccented(text: str) -> str:
    """Remove accents, since `âge` and `décès` are often written without; ä, ö, and ü are kept."""
    return "".join(
        letter if letter in "äöü" else unicodedata.normalize("NFKD", letter)[0]
        for letter in unicodedata.normalize("NFC", text)
    )


def is_path(name: str) -> bool:
    """Return True for a path into a GDC case, such as `demographic.vital_status`."""
    return (
        re.match(
            r"^(cases|demographic|diagnoses|exposures|follow_ups|treatments|project|pathology_details|"
            r"family_histories|other_clinical_attributes|molecular_tests)\.",
            name,
        )
        is not None
    )


def words(name: str) -> str:
    """Join the tokens of a name for pattern matching."""
    return " ".join(tokens(name))


def stem(name: str) -> str:
    """Return the outcome that a column name contains, or an empty string."""
    found = set(tokens(name))
    for outcome, spellings in STEMS:
        if any(spelling <= found for spelling in spellings):
            return outcome
    return "OS" if found & OF_DEATH else ""


def unit_in(name: str) -> str:
    """Return the time unit that a name contains, or an empty string."""
    found = set(tokens(name))
    return next((unit for unit, spelled in UNITS.items() if found & spelled), "")


def label_from(name: str) -> str:
    """Make a display label from a name."""
    text = re.sub(r"[_.]+", " ", re.sub(r"([a-z])([A-Z])", r"\1 \2", name)).strip()
    return (text[:1].upper() + (text[1:].lower() if text.isupper() else text[1:]))[:120]


def slug(name: str, taken: set[str]) -> str:
    """Make a `cohort.toml` key from a name, different from those in `taken`."""
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    text = re.sub(r"[^A-Za-z0-9_+-]+", "_", plain).strip("_.+-").lower()[:60] or "column"
    found, number = text, 2
    while found in taken:
        found, number = f"{text}_{number}", number + 1
    taken.add(found)
    return found
