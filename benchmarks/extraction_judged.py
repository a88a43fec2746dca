"""Print how many triples of unseen abstracts are right, by committed judgments, and draw it.

    python -m benchmarks.extraction_judged

`benchmarks/results/extraction/held_out.tsv` holds 300 triples that `rules` read where both
arguments stand by their phrases (version 11, the lexicon of `kg/README.md`), in abstracts that took
no part in development:
BioNLP-ST 2013 Cancer Genetics (train and devel, texts only) and the development half of BC5CDR, a
draw by the hash of source, triple and sentence. Each was judged twice on what its sentence says
(entities, direction, sign, denial), the second time in another order without the first judgments,
and once by another reader (`other`) who saw neither. The score counts a triple as right where all
say so. The half marked `calibration` was
fitted on (`python -m benchmarks.extraction_fit`); reliability is that of the other half.

`held_out_17.tsv` holds 120 triples that version 17 keeps by default, in abstracts of Cancer
Genetics and of the training half of BC5CDR that stand in no other sheet, drawn likewise and judged
by two readers apart. Three mends were made after it (`VERSION` is the same).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.adapters.claim_audit import kappa
from benchmarks.adapters.triple_review import wilson
from kg.extract.probability import THRESHOLD
from validation.figures.style import MUTED, OKABE_ITO, canvas, save

JUDGED = Path(__file__).parent / "results" / "extraction"


def rows(sheet: str = "held_out.tsv") -> list[dict[str, str]]:
    """The judged triples of a sheet."""
    with (JUDGED / sheet).open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def share(flags: Sequence[bool]) -> str:
    """A proportion with its 95% Wilson interval."""
    low, high = wilson(sum(flags), len(flags))
    return f"{sum(flags) / len(flags):.3f} ({low:.3f} to {high:.3f}) of {len(flags)}"


def main() -> None:
    """Print the score."""
    judged = rows()
    first = [row["first"] == "1" for row in judged]
    second = [row["second"] == "1" for row in judged]
    other = [row["other"] == "1" for row in judged]
    twice = [a and b for a, b in zip(first, second, strict=True)]
    both = [a and b for a, b in zip(twice, other, strict=True)]
    print("right, first reading ", share(first))
    print("right, second reading", share(second))
    print("right, in both of them", share(twice))
    print("right, other reader  ", share(other))
    print("right in all         ", share(both))
    print(f"kappa of one reader's two readings {kappa(first, second):.3f}")
    print(f"kappa of two readers {kappa(twice, other):.3f}")
    for corpus in sorted({row["corpus"] for row in judged}):
        flags = [b for b, row in zip(both, judged, strict=True) if row["corpus"] == corpus]
        print(f"  {corpus}: {share(flags)}")
    for who, flags in (("to one reader, twice", twice), ("in all", both)):
        read = [(row, b) for row, b in zip(judged, flags, strict=True) if row["probability"]]
        kept = [(row, b) for row, b in read if float(row["probability"]) >= THRESHOLD]
        print(f"at today's threshold of {THRESHOLD}, right {who}:")
        print("  all                 ", share([b for _, b in kept]))
        for name in ("calibration", "reliability"):
            print(f"  half for {name:11}", share([b for row, b in kept if row["half"] == name]))
    print("of what is right, kept:", share([float(row["probability"]) >= THRESHOLD
                                            for row, b in read if b]))  # fmt: skip
    print("reliability on its half, by quarters of the probability:")
    half = [(float(row["probability"]), b) for row, b in read if row["half"] == "reliability"]
    for said, right in quarters(half):
        print(f"  said {said:.3f}  is {share(right)}")
    later = rows("held_out_17.tsv")
    one, two = ([row[reader] == "1" for row in later] for reader in ("first", "second"))
    print("version 17, right by both", share([a and b for a, b in zip(one, two, strict=True)]))
    print(f"  kappa of its readers {kappa(one, two):.3f}")
    fresh = [
        (float(row["probability"]), a and b) for row, a, b in zip(later, one, two, strict=True)
    ]
    for said, right in quarters(fresh):
        print(f"  said {said:.3f}  is {share(right)}")
    draw({f"{len(half)} readings, version 11": half, f"{len(fresh)} kept by version 17": fresh})


def quarters(read: Sequence[tuple[float, bool]]) -> list[tuple[float, list[bool]]]:
    """Mean probability and judgments of the four quarters by probability."""
    order = sorted(read)
    parts = [order[at * len(order) // 4 : (at + 1) * len(order) // 4] for at in range(4)]
    return [(sum(p for p, _ in part) / len(part), [right for _, right in part]) for part in parts]


def draw(sheets: Mapping[str, Sequence[tuple[float, bool]]]) -> None:
    """The reliability plot, `reliability.svg` beside the sheets."""
    with canvas(4.2, 4.2) as figure:
        axes = figure.add_axes((0.15, 0.14, 0.8, 0.8))
        axes.plot([0.5, 1], [0.5, 1], color=MUTED, linewidth=0.9, linestyle="--", label="ideal")
        for (name, read), color, marker, shift in zip(
            sheets.items(), OKABE_ITO, "os", (-0.003, 0.003), strict=False
        ):
            points = quarters(read)
            center = [sum(right) / len(right) for _, right in points]
            ends = [wilson(sum(right), len(right)) for _, right in points]
            axes.errorbar(
                [said + shift for said, _ in points],
                center,
                yerr=[
                    [max(c - low, 0) for c, (low, _) in zip(center, ends, strict=True)],
                    [max(high - c, 0) for c, (_, high) in zip(center, ends, strict=True)],
                ],
                fmt=marker,
                color=color,
                markersize=5,
                elinewidth=1.1,
                capsize=2.5,
                label=name,
            )
        axes.set(xlim=(0.6, 1), ylim=(0.3, 1.03), xlabel="Probability that a triple is right")
        axes.set_ylabel("Share right by all readers (95% interval)")
        axes.legend(loc="upper left", fontsize=8)
        save(figure, JUDGED / "reliability.svg", title="Reliability of the rules' probabilities")


if __name__ == "__main__":
    main()
