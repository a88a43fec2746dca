"""Vocabulary of column names: outcome, time, identifier, baseline, and after baseline."""

from __future__ import annotations

import re
import unicodedata


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())


STEMS: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = tuple(
    (name, tuple(map(word_set, spellings)))
    for name, spellings in (
        ("CSS", ("css", "cancer specific", "tumor specific")),
        ("DSS", ("dss", "disease specific")),
        ("PFI", ("pfi",)),
        ("PFS", ("pfs", "progression free")),
        ("DFI", ("dfi",)),
        ("DFS", ("dfs", "disease free", "sans maladie")),
        ("RFS", ("rfs", "recurrence free", "relapse free")),
        ("MFS", ("mfs", "dmfs", "metastasis free", "tdm", "edm")),
        ("EFS", ("efs", "event free")),
        ("TTP", ("ttp",)),
        ("RFS", ("recurrence", "recurred", "relapse", "relapsed", "recidive", "rechute")),
        ("PFS", ("progression", "progressed")),
    )
)
OF_DEATH = word_set(
    "os survival vital death dead died deceased alive oas futime fustat survtime verstorben "
    "gestorben tod todesdatum überleben deces decede decedee mort vivant survie"
)
"""Words that mean overall survival if no other outcome is named."""
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
    "days": word_set("day days d tage jour jours"),
    "weeks": word_set("week weeks wk wks semaines"),
    "months": word_set("month months mo mos mths monate mois"),
    "years": word_set("year years yr yrs jahre ans annees"),
}
TIME = word_set("time times survtime futime duration followup fu delai suivi duree").union(
    *UNITS.values()
) - {"d"}
NO_TIME = word_set(
    "age birth began smoked smoking pack stopped diagnosis initial form completion upload batch "
    "treatment therapy collection procurement radiation drug dose sample response submission "
    "number count exposure dx additional surgery dcc shipment naissance traitement tabac"
)
EVENT = word_set(
    "status event events censor censored censoring cens dead death deceased died vital alive "
    "fustat verstorben gestorben tod statut evenement deces decede decedee mort vivant"
)
NO_EVENT = word_set(
    "new classifier predicted prediction risk score menopause menopausal nodal er pr her2 her "
    "mutation mutational smoking cause date days type site margin"
)
OUTCOME = re.compile(
    r"\b(death|dead|died|deceased?|vital|alive|surviv\w*|censor\w*|cens|recurr\w*|relapse\w*|"
    r"progress(ed|ion)|new tumor event|last (contact|follow|known|seen|visit)|follow ?ups?|lost to|"
    r"cause of|respon(se|der)s?|recist|outcome|(tumor|cancer|neoplasm) status|os|pfs|pfi|dfs|dfi|"
    r"dss|css|rfs|mfs|efs|success|complete(d)? response|lfu|days to (new|last)|event|"
    r"verstorben|gestorben|tod|todes\w*|überleb\w*|rezidiv\w*|deces|decedee?|mort|vivant|survie|recidive\w*|"
    r"rechute\w*|evenement|suivi|dernieres? (nouvelles?|visite))\b"
)
AFTER = re.compile(
    r"\b(adjuvant|post ?op\w*|postoperative|subsequent|salvage|second line|additional|"
    r"radiation|radiotherapy|chemo\w*|treated|treatment|therapy|hormonal|immunotherapy|cycles?|"
    r"complications?|readmission|toxicity|visits?|chimio\w*|radiotherapie|"
    r"traitements?|immunotherapie)\b"
)
BEFORE = re.compile(
    r"\b(neo ?adjuvant|prior|previous|history|pre ?op\w*|preoperative|baseline|antecedents?)\b"
)
AT_BASELINE = re.compile(
    r"\b(age|sexe?|stade|gender|race|"
    r"ethnicity|(at|initial) diagnosis|baseline|menopausal? (status|state)|"
    r"menostat|histolog(y|ic|ical) (type|grade)|"
    r"(tumou?r|pathologic(al)?|clinical|ajcc|tnm|tmn|figo|n|histologic(al)?) ?(stage|grade)|"
    r"stage|grade|(ajcc )?(pathologic(al)?|path|clinical) [tnm]( stage)?|p[tn]|ct|"
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
        (3, "case submitter id ids sampleid gsm identifiant"),
        (2, "sample geo accession nr dossier"),
        (1, "number numero"),
    )
    for word in text.split()
}
BIRTH = re.compile(r"\b(birth|dob|geburtsdatum|born|naissance)\b")
START = re.compile(
    r"\b(diagnos\w*|dx|surgery|operation|op|cystectomy|resection|turb?t?|biopsy|random\w*|enrol\w*|"
    r"entry|inclusion|start|baseline|registration|treatment|sampling|debut|chirurgie)\b"
)
LAST = re.compile(
    r"\b(last|lfu|fu|follow ?up|followup|contact|seen|censor\w*|end|status|"
    r"derniere?s?|nouvelles?)\b"
)
DEATH = re.compile(
    r"\b(death|dead|died|deceased?|exitus|dod|tod|todesdatum|verstorben|gestorben|"
    r"deces|decedee?)\b"
)
CONTACT = re.compile(r"\blast (contact|follow|fu|seen|known|visit)|\bfollow ?up\b")


def tokens(name: str) -> list[str]:
    """Return the words of a column name in lower case, without accents except umlauts."""
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", name.rpartition(".")[2] if _path(name) else name)
    return re.findall(r"[^\W\d_]+|\d+", _unaccented(split.casefold()))


def _unaccented(text: str) -> str:
    """Remove accents, as `âge` and `décès` are often written without them; ä, ö, and ü are kept."""
    return "".join(
        letter if letter in "äöü" else unicodedata.normalize("NFKD", letter)[0]
        for letter in unicodedata.normalize("NFC", text)
    )


def _path(name: str) -> bool:
    """Return True for a path into a GDC case, such as `demographic.vital_status`."""
    return re.match(r"^(cases|demographic|diagnoses|exposures|follow_ups)\.", name) is not None


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
    """Return the unit of time that a name contains, or an empty string."""
    found = set(tokens(name))
    return next((unit for unit, spelled in UNITS.items() if found & spelled), "")


def label_from(name: str) -> str:
    """Make a label from a name."""
    text = re.sub(r"[_.]+", " ", re.sub(r"([a-z])([A-Z])", r"\1 \2", name)).strip()
    return (text[:1].upper() + (text[1:].lower() if text.isupper() else text[1:]))[:120]


def slug(name: str, taken: set[str]) -> str:
    """Make a key of `cohort.toml` from a name, different from those in `taken`."""
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    text = re.sub(r"[^A-Za-z0-9_+-]+", "_", plain).strip("_.+-").lower()[:60] or "column"
    found, number = text, 2
    while found in taken:
        found, number = f"{text}_{number}", number + 1
    taken.add(found)
    return found
