"""Detection of entity mentions by ontology, lexicons, document abbreviations and patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kg.extract.base import Mention
from kg.extract.cell_lines import cell_lines
from kg.lexicon.ambiguous import Ambiguous, Meaning
from kg.lexicon.index import Lexicon, LexiconEntry
from kg.lexicon.ontology import Ontology
from kg.lexicon.wordlist import words
from kg.types import EntityType

_MICRORNA = re.compile(r"\b(?:hsa-)?mi[Rr](?:NA)?-?\d+[a-z]?(?:-[35]p)?(?:-\d)?\b|\blet-7[a-i]?\b")
_VARIANT = re.compile(
    r"\b(?:rs\d{3,}|[cgmnp]\.[\w>_*+-]+|[ACDEFGHIKLMNPQRSTVWY]\d{2,4}(?:[ACDEFGHIKLMNPQRSTVWY]|X|fs|del)"
    r"|(?:Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val)-?\d{1,4}"
    r"-?(?:Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val|Ter|Stop)"
    r"|-?\d{2,5}[ACGT]\s?(?:/|>|-->|-)\s?[ACGT])\b"
)
# `overall (p=0.005) and progression-free survival`: the first shares the noun of the second.
_SHARED_NOUN = re.compile(
    r"\b(overall|(?:disease|progression|recurrence|relapse|metastasis|event)-free|(?:cancer|disease|"
    r"tumou?r)-specific)(?= ?(?:\([^()]*\))?,? ?(?:and|or|and/or|,)? ?(?:better |worse "
    r"|longer |shorter )?"
    r"(?:(?:overall|[a-z]+-free|[a-z]+-specific)\b ?(?:\([^()]*\))?,? ?(?:and|or|and/or)? ?){1,4}"
    r"survival\b)",
    re.IGNORECASE,
)
# A disease by its head word, with the modifiers that belong to its name.
_HEAD = (
    r"diseases?|disorders?|syndromes?|cancers?|carcinomas?|tumou?rs?|neoplasms?|malignanc(?:y|ies)|"
    r"lymphomas?|leuk(?:a)?emias?|sarcomas?|adenomas?|melanomas?|gliomas?|\w{3,}omas|metastas[ie]s|"
    r"infections?|injur(?:y|ies)|failure|insufficiency|dysfunctions?|impairments?|deficits?|"
    r"defects?|abnormalit(?:y|ies)|malformations?|anomal(?:y|ies)|lesions?|toxicit(?:y|ies)|"
    r"\w*(?:nephro|neuro|hepato|cardio|oto|cyto|myelo)toxicit(?:y|ies)|\w+(?:opathy|opathies)|"
    r"\w{3,}itis|\w{4,}(?:emia|aemia|uria|osis|penia|plegia|algia|trophy|dystrophy|kinesia)|"
    r"seizures?|convulsions?|epilepsy|migraines?|anxiety|depression|dementia|retardation|"
    r"fibrosis|necrosis|stenosis|thrombosis|hypertension|hypotension|h(?:a)?emorrhages?|stroke|"
    r"infarctions?|isch(?:a)?emia|arrhythmias?|tachycardia|bradycardia|prolongation|diabetes|"
    r"obesity|pain|edema|bleeding|rash|delirium|psychosis|addiction|dependence|damage|death|"
    r"myelosuppression|encephalopathy|hypoxia|asthma|anemia|allergy|AIDS|dysplasia|hyperplasia|"
    r"hypoplasia|agenesis|atrophy|dystrophy|degeneration|neurodegeneration|deafness|blindness|"
    r"cataracts?|fractures?|microphthalmia|hypotonia|ataxia|schizophrenia|autism|sepsis"
)
_MODIFIER = (
    r"(?:acute|chronic|congenital|familial|hereditary|inherited|sporadic|idiopathic|primary|"
    r"secondary|benign|malignant|metastatic|advanced|early-onset|late-onset|juvenile|infantile|"
    r"neonatal|autosomal (?:dominant|recessive)|X-linked|type (?:[12]|I{1,3}|IV)|end-stage|"
    r"severe|progressive|systemic|diffuse|focal|left|right|bilateral|ventricular|atrial|cardiac|"
    r"coronary|myocardial|pulmonary|renal|kidney|liver|hepatic|biliary|gastric|intestinal|"
    r"colorectal|colon|rectal|pancreatic|bladder|urinary|urothelial|prostate|prostatic|testicular|"
    r"ovarian|uterine|endometrial|cervical|breast|lung|bronchial|thyroid|adrenal|pituitary|brain|"
    r"cerebral|cerebellar|intracerebral|spinal|cortical|neuronal|neurological|nervous|cognitive|"
    r"memory|mental|intellectual|psychiatric|mood|bipolar|anxiety|sleep|motor|muscular|muscle|"
    r"skeletal|bone|joint|skin|cutaneous|oral|nasal|head and neck|ocular|retinal|macular|corneal|"
    r"optic|hearing|auditory|visual|vascular|venous|arterial|deep vein|heart|blood|hematologic|"
    r"lymphatic|immune|autoimmune|inflammatory|infectious|viral|bacterial|fungal|metabolic|"
    r"mitochondrial|lysosomal|endocrine|genetic|chromosomal|developmental|neurodegenerative|"
    r"neuropsychiatric|cardiovascular|cerebrovascular|gastrointestinal|respiratory|allergic|"
    r"rheumatoid|ischemic|hemorrhagic|hypertensive|diabetic|alcoholic|non-?alcoholic fatty|"
    r"squamous cell|basal cell|small[- ]cell|non-small[- ]cell|clear cell|germ cell|transitional "
    r"cell|stromal|epithelial|neuroendocrine|HIV|HBV|HCV|EBV|HPV|QT|\w+-(?:related|"
    r"associated)|age-related|interstitial|tubular|glomerular|"
    r"peripheral|sensory|neuropathic|absence|convulsive|partial|generalized|major|solid|secondary)"
)
_DISEASE = re.compile(
    rf"\b(?:(?:{_MODIFIER})[ -]){{0,4}}(?:{_HEAD})\b(?: type (?:\d|I{{1,3}}V?)\b)?", re.IGNORECASE
)
_EPONYM = re.compile(
    r"\b(?!(?:This|That|These|Those|Such|Each|Other|Another|Both|Some|Their|Which|With)\b)"
    r"[A-Z][a-zé]{3,}(?:-[A-Z][a-zé]+)*(?:'s?)? (?:disease|syndrome|lymphoma|sarcoma"
    r"|tumor|anomaly)\b"
)
# Heads too general to be an entity by themselves.
_BARE = words(
    """
    disease diseases disorder disorders syndrome syndromes failure dysfunction dysfunctions
    damage impairment impairments deficit deficits defect defects abnormality abnormalities
    malformation malformations anomaly anomalies lesion lesions injury injuries insufficiency
    prolongation dependence diagnosis prognosis analysis hypothesis synthesis basis genesis
    mitosis meiosis apoptosis osmosis metamorphosis phagocytosis endocytosis exocytosis
    autophagy trophy transcriptosis hypnosis gnosis biosynthesis pathogenesis tumorigenesis
    carcinogenesis angiogenesis ferroptosis pyroptosis necroptosis homeostasis metastasis death
    pathology ploidy degeneration retardation
    """
)
_SPECIES = re.compile(
    r"\b(?:(?:human immunodeficiency|human papilloma|mouse mammary tumou?r) ?virus(?: type [12])?"
    r"|(?:hepatitis [BC]|dengue|west nile|epstein-barr|zika) virus(?: type [1-4])?"
    r"|patients?|humans?(?! (?:chorionic|leu[ck]ocyte antigen))|(?:wo)?men|woman"
    r"|(?<!inheritance in )man"
    r"|mice|mouse|murine|rats?|rabbits?|zebrafish|hamsters?|(?:guinea[ -])?pigs?|dogs?(?! shake)"
    r"|(?:rhesus |cynomolgus )?(?:monkeys?|macaques?)|chicks?|chickens?|yeast|bovine|porcine|canine"
    r"|sheep|cats|horses|goats|cattle|fruit fl(?:y|ies)"
    r"|(?-i:[A-Z](?:[a-z]+|\.)) (?:coli|elegans|cerevisiae|pombe|melanogaster|laevis|thaliana"
    r"|rerio|musculus|norvegicus|sapiens|mulatta|aureus|pylori|albicans|aeruginosa|falciparum)"
    r"|xenopus|drosophila)\b",
    re.IGNORECASE,
)
# A drug by the stem of its nonproprietary name; ions and acids by their form.
_DRUG = re.compile(
    r"\b(?!(?:examine|determine|famine|stamine|vitamine)s?\b)"
    r"(?:[A-Za-z]+-)?[A-Za-z]{2,}(?:(?:li|zu|xi|mu|nu|tu)mab|tinib|rafenib|ciclib|parib|degib|olimus"
    r"|platin|statin|azole|oxacin|cillin|mycin|micin|sartan|[aeiou]lol|prazole|[aeiou]pril|dipine|zepam"
    r"|zolam|barbital|barbitone|caine|triptan|setron|gliptin|glitazone|cycline|ciclovir|fovir|citabine"
    r"|taxel|rubicin|oxetine|azosin|curium|curonium|flurane|profen|coxib|parin|[aeiou]grel|xaban|gatran"
    r"|azine|apine|idone|piprazole|thiazide|semide|solone|asone|sterone|estrol|adiol|bucil|mustine"
    r"|tecan|poside|cristine|blastine|morphine|codone|fentanil|fentanyl|phylline|zodone|idazole"
    r"|quine|oxin|opolamine|tropine|iptyline|ipramine|fylline|dopa|zepine|gestrel|trexate|trexed)s?\b"
    r"|\b(?:5-HT|5-FU|ATP|[Ss]uperoxide|[Aa]lcohol|[Ll]ipids?|(?:gluco)?corticoids?|[Gg]lucocorticoids?"
    r"|(?:cortico)?steroids?|[Oo]pioids?|NSAIDs?|[Ff]olate|[Ss]tatins?|[Aa]nthracyclines?|MDMA)\b"
    r"|\b(?:Ca|Mg|Zn|Na|Fe|Cu|Mn) ?\(?[23]?\+\)?|\b[a-z]+(?:-[a-z]+)*ic acids?\b",
)
# T24, H1299 and friends look like variants; a variant needs a reference and a new residue.
_PATTERNS = (
    (_MICRORNA, EntityType.GENE),
    (_VARIANT, EntityType.MUTATION),
    (_DRUG, EntityType.CHEMICAL),
)


#: Genes that mark a cell type: in `CD8+, FoxP3+ and CD20+ cells`, the marker denotes the cell.
MARKED = {
    "CD3D": "T cell", "CD3E": "T cell", "CD4": "CD4 T cell", "CD8A": "CD8 T cell",
    "FOXP3": "regulatory T cell", "MS4A1": "B cell", "CD79A": "B cell", "CD19": "B cell",
    "CD68": "macrophage", "CD163": "M2 macrophage", "MRC1": "M2 macrophage",
    "NCAM1": "NK cell", "SDC1": "plasma cell", "LAMP3": "dendritic cell",
}  # fmt: skip


# Types of entities that an agent may act on, so that `X inhibitor` differs from X.
_ACTED_ON = frozenset(
    {EntityType.GENE, EntityType.PROTEIN, EntityType.PATHWAY, EntityType.CHEMICAL}
)
_AGENT_AFTER = re.compile(
    r"[\s-](?:(?:pathway|signal?ling|receptors?|(?:tyrosine )?kinases?|proteins?|checkpoint|axis"
    r"|monoclonal|neutrali[sz]ing|blocking|specific|selective|targeted|targeting|directed)[\s-]){0,3}"
    r"(inhibitors?|antagonists?|agonists?|blockers?|blockade|inhibition|blocking|blocked|antagonism"
    r"|neutrali[sz]ation|antibod(?:y|ies)|mimetics?|degraders?|vaccines?|"
    r"inactivators?|antiserum)\b"
)
_AGENT_BEFORE = re.compile(
    r"\b(inhibitors?|antagonists?|agonists?|blockers?|blockade|inhibition|antagonism"
    r"|neutrali[sz]ation|antibod(?:y|ies)|activators?)"
    r" (?:of|against|to|for|targeting|that (?:block|inhibit|target)s?)"
    r" (?:(?:the|both|human|either) ){0,2}$",
    re.IGNORECASE,
)
_ANTI = re.compile(r"\b[Aa]nti[- ]?$")
# Names in vocabularies that are not informative by themselves.
_GENERAL = words(
    """
    elements proteins tissues plasma serum tissue peptides arm hand skeleton head cells risk air
    water face solutions base acids ligands antigens antibodies enzymes hormones lipids ions
    light sound family mothers fathers students names time attention association memory role
    gases solvents dust acid bile cognition
    """
) | {"cell line", "blood plasma", "biosynthetic process", "catabolic process",
     "signal transduction", "transcription factors", "metabolic process", "growth factor",
     "immune response"}  # fmt: skip


def _agent_kind(word: str) -> str:
    """Return the kind of an agent: inhibitor, antagonist, agonist, therapy or vaccine."""
    word = word.lower()
    if word.startswith(("inhibit", "block", "neutrali", "antibod", "inactiv", "antiser", "degrad")):
        return "inhibitor"
    if word.startswith("antagonis"):
        return "antagonist"
    if word.startswith(("agonis", "activator", "mimetic")):
        return "agonist"
    return "therapy" if word.startswith(("therap", "monoth")) else "vaccine"


_CELLS_AFTER = re.compile(r"[\s-]cells?$", re.IGNORECASE)
_AGENT_NAME = re.compile(
    r"\b(?:inhibit|antagonis|agonis|block|antibod|neutrali|vaccine|therap|mimetic|degrader|anti-)",
    re.IGNORECASE,
)


def names_agent(name: str) -> bool:
    """Check whether a name denotes an agent (`PD-L1 blockade`) rather than its target."""
    return bool(_AGENT_NAME.search(name))


def acted_on(text: str, start: int, end: int) -> bool:
    """Check whether the name at `start:end` is only part of an agent's name (`PD-L1 inhibitor`)."""
    return bool(
        _AGENT_AFTER.match(text, end)
        or _ANTI.search(text[:start])
        or (_AGENT_BEFORE.search(text[:start]) and not text.startswith(" by ", end))
    )


class MentionFinder:
    """Finder of entities in text; earlier lexicons take precedence for equally long spans."""

    def __init__(self, ontology: Ontology, lexicons: Sequence[Lexicon] = ()) -> None:
        self._ontology = ontology
        self._lexicons = (ontology.lexicon, *lexicons)
        self._ambiguous = Ambiguous(ontology, lexicons)

    def find(self, text: str, abbreviations: Sequence[tuple[str, str]] = ()) -> list[Mention]:
        """Find the mentions in `text`, in order; among overlapping mentions, keep the longest."""
        candidates: list[tuple[int, int, Mention]] = []
        document = "\n".join((text, *(long for _, long in abbreviations)))
        for rank, lexicon in enumerate(self._lexicons):
            for match in lexicon.find(text):
                decided, read_as = self._ontology.homonyms.decide(text, match.start, match.end)
                entry: Meaning | None = self._ontology.by_id(read_as) if read_as else None
                if entry is None:
                    by_name = None if decided else lexicon.entry(match.entry)
                    entry = self._ambiguous.decide(text[match.start : match.end], document, by_name)
                if (
                    entry
                    and entry.type == EntityType.ORGANISM
                    and _SPECIES.search(text, match.start, match.end)
                ):
                    continue  # `Wistar rats` are rats
                mention = (
                    Mention(match.start, match.end, "", EntityType.OTHER, None)
                    if entry is None
                    else Mention(match.start, match.end, entry.name, entry.type, entry.id)
                )
                candidates.append((match.start - match.end, rank, _without_cells(text, mention)))
        # Where the document defines letters as no known entity, the lexicon's reading is blocked.
        nothing = Mention(0, 0, "", EntityType.OTHER, None)
        for short, long in abbreviations:
            known = self._denotes(long)
            pattern = re.compile(rf"(?<![\w-]){re.escape(short)}s?(?!\w)")
            for hit in pattern.finditer(text):
                mention = replace(known or nothing, start=hit.start(), end=hit.end())
                candidates.append((hit.start() - hit.end() - 1, -1, mention))
        for hit in _SPECIES.finditer(text):
            species = self._ontology.find(hit.group())
            if species is None or species.type is not EntityType.ORGANISM:
                name, entity = hit.group().lower(), None
            else:
                name, entity = species.name, species.id
            mention = Mention(hit.start(), hit.end(), name, EntityType.ORGANISM, entity)
            candidates.append((hit.start() - hit.end(), -1, mention))
        for start, end in self._cell_lines(text, abbreviations):
            line = self._meaning(text[start:end])
            if line is None or line.type is not EntityType.CELL_LINE:
                line = LexiconEntry("", text[start:end], EntityType.CELL_LINE)
            candidates.append(
                (start - end - 2, -1, Mention(start, end, line.name, line.type, line.id or None))
            )
        for pattern, kind in _PATTERNS:
            for hit in pattern.finditer(text):
                candidates.append(
                    (hit.start() - hit.end(), 50,
                     Mention(hit.start(), hit.end(), hit.group(), kind, None))
                )  # fmt: skip
        for hit in _SHARED_NOUN.finditer(text):
            shared = self._ontology.find(f"{hit.group(1).lower()} survival")
            if shared is not None:
                candidates.append(
                    (hit.start() - hit.end() - 1, -1,
                     Mention(hit.start(), hit.end(), shared.name, shared.type, shared.id))
                )  # fmt: skip
        for start, end in disease_spans(text):
            candidates.append(
                (start - end, 40,
                 Mention(start, end, disease_name(text[start:end]), EntityType.DISEASE, None))
            )  # fmt: skip
        candidates.sort(key=lambda c: (c[0], c[1], c[2].start))
        taken = bytearray(len(text))
        chosen = []
        for _length, _rank, mention in candidates:
            if any(taken[mention.start : mention.end]):
                continue
            taken[mention.start : mention.end] = b"\x01" * (mention.end - mention.start)
            if mention.name.lower() in _GENERAL:
                continue
            if mention.name:
                chosen.append(mention)
        chosen.sort(key=lambda m: m.start)
        return [*self._agents(text, [self._expand_marker(text, mention) for mention in chosen])]

    def _meaning(self, name: str) -> LexiconEntry | None:
        """Look the name up in each vocabulary in turn and return the first entry found."""
        for lexicon in self._lexicons:
            for match in lexicon.find(name):
                if match.start == 0 and match.end == len(name):
                    return lexicon.entry(match.entry)
        return None

    def _cell_lines(
        self, text: str, abbreviations: Sequence[tuple[str, str]]
    ) -> list[tuple[int, int]]:
        """Find the spans of names that the text identifies as cell lines."""
        short = {short for short, _ in abbreviations}

        def is_line(name: str) -> bool:
            entry = self._meaning(name)
            return entry is not None and entry.type is EntityType.CELL_LINE

        def is_other(name: str) -> bool:
            entry = self._meaning(name)
            return name in short or (entry is not None and entry.type is not EntityType.CELL_LINE)

        return list(cell_lines(text, is_line, is_other))

    def _agents(self, text: str, mentions: Sequence[Mention]) -> Iterator[Mention]:
        """Replace mentions that are part of an agent's name with mentions of the agent.

        `ACE inhibitors`, `blockade of PD-L1` and `anti-CD20 antibody` are entities in their own
        right: statements about them are not about ACE, PD-L1 and CD20.
        """
        floor = 0
        for position, mention in enumerate(mentions):
            if mention.start < floor:
                continue
            if mention.type not in _ACTED_ON:
                yield mention
                continue
            following = mentions[position + 1].start if position + 1 < len(mentions) else len(text)
            start, end, kind = mention.start, mention.end, ""
            after = _AGENT_AFTER.match(text, mention.end)
            if after and after.end() > following and mentions[position + 1].end > after.end():
                after = None
            before = _AGENT_BEFORE.search(text, floor, mention.start)
            anti = _ANTI.search(text, floor, mention.start)
            if after:
                kind, end = after.group(1), after.end()
            elif before and not text.startswith(" by ", mention.end):
                kind, start = before.group(1), before.start()
            if anti:
                kind, start = "inhibitor", anti.start()
            if not kind:
                yield mention
                continue
            floor = end
            name = f"{mention.name} {_agent_kind(kind)}"
            entry = self._ontology.find(name) or self._ontology.find(text[start:end])
            if entry is not None:
                yield Mention(start, end, entry.name, entry.type, entry.id)
            else:
                yield Mention(start, end, name, EntityType.TREATMENT, None)

    def _expand_marker(self, text: str, mention: Mention) -> Mention:
        """Replace a marker followed by a plus sign with the cell type that expresses it."""
        cell = MARKED.get(mention.name)
        if cell is None or text[mention.end : mention.end + 1] not in {"+", "⁺"}:
            return mention
        entry = self._ontology.find(cell)
        if entry is None:
            return mention
        return Mention(mention.start, mention.end + 1, entry.name, entry.type, entry.id)

    def _denotes(self, long: str) -> Mention | None:
        """Find the entity that a long form or its end denotes (`human bladder cancer`)."""
        for lexicon in self._lexicons:
            for match in reversed(lexicon.find(long)):
                if match.end == len(long) and match.start <= len(long) // 3:
                    entry = lexicon.entry(match.entry)
                    if match.start and entry.type is EntityType.ORGANISM:
                        continue  # `AT1a knockout mice` are not the species
                    return Mention(0, len(long), entry.name, entry.type, entry.id)
        if _DRUG.fullmatch(long):
            return Mention(0, len(long), long.lower(), EntityType.CHEMICAL, None)
        for start, end in disease_spans(long):
            if end == len(long):
                return Mention(0, end, disease_name(long[start:]), EntityType.DISEASE, None)
        return None


def _without_cells(text: str, mention: Mention) -> Mention:
    """Shorten the mention of a cell line to its name: `HeLa cells` becomes `HeLa`."""
    cells = _CELLS_AFTER.search(text, mention.start, mention.end)
    if mention.type is not EntityType.CELL_LINE or not cells:
        return mention
    return replace(mention, end=cells.start())


def disease_spans(text: str) -> list[tuple[int, int]]:
    """Find spans that denote diseases by their head word, including the name's modifiers."""
    spans = []
    for pattern in (_DISEASE, _EPONYM):
        for match in pattern.finditer(text):
            surface = match.group().lower()
            if surface in _BARE or surface.rsplit(" ", 1)[-1] in {"diagnosis", "prognosis"}:
                continue
            spans.append(match.span())
    return spans


def disease_name(surface: str) -> str:
    """Normalize a disease name found by pattern: lower case, singular."""
    name = surface if re.search(r"[A-Z]{2}|'", surface) else surface.lower()
    name = re.sub(r"\s+", " ", name).replace("tumour", "tumor")
    if name.endswith(("ies", "sis", "ss", "us", "itis", "etes", "AIDS", "ness")):
        return re.sub(r"(?<=it)ies$|(?<=c)ies$|(?<=l)ies$", "y", name)
    return name[:-1] if name.endswith("s") else name
