"""Statistics and validation, measured: screening speed, calibration, and honesty of the whole path.

    python benchmarks/validation.py screen [--peer-features 25]
    python benchmarks/validation.py calibration --runs 1000
    python benchmarks/validation.py competing --runs 2000
    python benchmarks/validation.py pipeline --runs 500 --jobs 2
    python benchmarks/validation.py hypothesis
    python benchmarks/validation.py worlds --runs 500 --jobs 2 [--kind "small n"] [--seed 0]
    python benchmarks/validation.py all --out benchmarks/results

Each part prints a table and writes it, with the command and the machine, as JSON and Markdown.
Peers are timed in the same run, one after the other, on the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.adapters.null_statistics import (
    COMPETING,
    DISHONEST,
    TESTS,
    competing_coverage,
    competing_false_claims,
    coverage,
    false_claims,
    power_curve,
    rate,
)
from validation.simulate import Effects, survival_sample


def timed(work, repeat=1):
    """Median seconds of `repeat` calls."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def screened_by_r(time, event, features, covariates):
    """Seconds and processor seconds per feature of R's coxph.fit, and its coefficients.

    None where there is no Rscript.
    """
    program = shutil.which("Rscript")
    if program is None:
        return None
    parts = [time, event, *(() if covariates is None else covariates.T), *features.T]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        np.savetxt(
            table,
            np.column_stack(parts),
            delimiter=",",
            fmt="%.17g",
            header=",".join(f"c{at}" for at in range(len(parts))),
            comments="",
        )
        held = 0 if covariates is None else covariates.shape[1]
        script = Path(__file__).parent / "r" / "screen.R"
        told = subprocess.run(
            [program, str(script), str(table), str(held)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
    numbers = np.array(told, dtype=float)
    return numbers[0] / features.shape[1], numbers[1] / features.shape[1], numbers[2:]


def screen_part(args):
    """20,000 features x 400 patients against R, lifelines and scikit-survival."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    from validation.screening.rank import screen

    warnings.filterwarnings("ignore")
    n, p, sampled = 400, args.features, args.peer_features
    s = survival_sample(n, [0.4, 0.3, -0.2, 0.2], seed=1, censored=0.5)
    when = np.ceil(s.time * 700)
    features = np.random.default_rng(1).normal(size=(n, p)) * 1.5 + 6
    rows = []
    for label, covariates in (("no covariates", None), ("three covariates", s.X[:, 1:])):
        first = timed(lambda c=covariates: screen(when, s.event, features, c))
        before = time.process_time()
        screen(when, s.event, features, covariates, workers=1)
        cpu = time.process_time() - before
        ours = timed(lambda c=covariates: screen(when, s.event, features, c), 3)
        one = timed(lambda c=covariates: screen(when, s.event, features, c, workers=1), 3)
        result = screen(when, s.event, features, covariates, per_sd=False)
        y = Surv.from_arrays(s.event, when)

        def design(j, c=covariates):
            column = features[:, j : j + 1]
            return column if c is None else np.column_stack((column, c))

        start, before = time.perf_counter(), time.process_time()
        coefficients = [
            CoxPHSurvivalAnalysis(ties="efron", tol=1e-9).fit(design(j), y).coef_[0]
            for j in range(sampled)
        ]
        sksurv = (time.perf_counter() - start) / sampled
        sksurv_cpu = (time.process_time() - before) / sampled
        few = max(10, sampled // 5)
        start, before = time.perf_counter(), time.process_time()
        for j in range(few):
            frame = pd.DataFrame(design(j)).assign(t=when, e=s.event)
            CoxPHFitter().fit(frame, "t", "e")
        lifelines = (time.perf_counter() - start) / few
        lifelines_cpu = (time.process_time() - before) / few
        exact = [
            CoxPHSurvivalAnalysis(ties="efron", tol=1e-13, n_iter=200).fit(design(j), y).coef_[0]
            for j in range(sampled)
        ]
        r = screened_by_r(when, s.event, features[:, : args.r_features], covariates)
        rows.append(
            {
                "model": label,
                "patients": n,
                "features": p,
                "seconds": ours,
                "first call s": first,
                "one thread s": one,
                "scikit-survival s per 1,000": sksurv * 1000,
                "lifelines s per 1,000": lifelines * 1000,
                "ours s per 1,000": ours / p * 1000,
                **(
                    {
                        "R coxph.fit s per 1,000": r[0] * 1000,
                        "times R": r[0] * p / ours,
                        "times R (processor)": r[1] * p / cpu,
                        "largest difference from R": float(
                            np.abs(result.coef[: len(r[2])] - r[2]).max()
                        ),
                    }
                    if r is not None
                    else {}
                ),
                "times scikit-survival": sksurv * p / ours,
                "times lifelines": lifelines * p / ours,
                "processor s": cpu,
                "times scikit-survival (processor)": sksurv_cpu * p / cpu,
                "times lifelines (processor)": lifelines_cpu * p / cpu,
                "largest difference": float(np.abs(result.coef[:sampled] - exact).max()),
                "at its default stop": float(
                    np.abs(np.array(coefficients) - result.coef[:sampled]).max()
                ),
            }
        )
    yield "Screening", rows
    yield "The command `sage validate screen`", [screened_by_command(n, p) for n in (400, 1000)]


def screened_by_command(n, p):
    """`sage validate screen` from the files to the table and the figure, as a person runs it."""
    import pandas as pd

    from validation.simulate.layout import TABLES, survival_toml, variable_toml

    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ids = pd.Index([f"P{at:04d}" for at in range(n)], name="patient")
        clinical = {
            "OS.time": rng.exponential(1000, n).round() + 1,
            "OS": rng.integers(2, size=n),
            "age": rng.normal(65, 9, n).round(1),
        }
        pd.DataFrame(clinical, index=ids).to_csv(place / "clinical.csv")
        genes = (rng.normal(size=(n, p)) * 1.5 + 6).round(4)
        names = [f"G{at}" for at in range(p)]
        pd.DataFrame(genes, columns=names, index=ids).to_csv(place / "expression.csv")
        (place / "cohort.toml").write_text(
            'id = "screened"\ntitle = "SIMULATED"\nsimulated = true\n'
            + TABLES
            + survival_toml("OS")
            + variable_toml("age", "continuous", "Age")
        )
        command = [sys.executable, "-m", "sage", "validate", "screen", "--cohort", str(place),
                   "--out", str(place / "out")]  # fmt: skip
        environment = os.environ | {"SAGE_LEDGER": str(place / "ledger.sqlite")}
        start, before = time.perf_counter(), processor_seconds()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return {
            "patients": n,
            "features": p,
            "seconds": time.perf_counter() - start,
            "processor s": processor_seconds() - before,
        }


def calibration_part(args):
    """False claims per test, coverage and power on arrays."""
    false = []
    for name in (*TESTS, *DISHONEST):
        runs = args.runs
        found = false_claims(name, runs=runs, n=200, seed=7)
        false.append(flat(found) | {"at most 5%": found.at_most(0.05)})
    yield "False claims on null data", false
    cover = []
    for penalty, n, hr, prevalence, censored in (
        (False, 200, 1.6, 0.4, 0.4),
        (False, 400, 2.0, 0.25, 0.5),
        (True, 200, 1.6, 0.4, 0.4),
        (True, 60, 2.5, 0.15, 0.7),
    ):
        found = coverage(
            runs=args.runs, hr=hr, n=n, prevalence=prevalence, censored=censored, penalty=penalty,
            seed=3,
        )  # fmt: skip
        cover.append({"n": n, "HR": hr, "censored": censored} | flat(found))
    yield "Interval coverage", cover
    power = [
        {
            "HR": point.hr,
            "mean events": point.events,
            "found": point.found.rate,
            "lower": point.found.lower,
            "upper": point.found.upper,
            "analytic": point.analytic,
        }
        for point in power_curve([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5], runs=args.runs, seed=5)
    ]
    yield "Power", power


def competing_part(args):
    """Competing risks: false claims where incidences are equal, coverage of Fine and Gray's."""
    yield (
        "False claims where only the competing event differs",
        [
            {"n": n} | flat(competing_false_claims(name, runs=args.runs, n=n, seed=7))
            for n in (100, 400)
            for name in COMPETING
        ],
    )
    yield (
        "Coverage of the subdistribution hazard ratio",
        [
            {"n": n, "sHR": shr} | flat(competing_coverage(runs=args.runs, shr=shr, n=n, seed=3))
            for n, shr in ((100, 1.6), (200, 1.6), (400, 2.5))
        ],
    )


def flat(found):
    """A rate as a row."""
    return {
        "name": found.name,
        "runs": found.runs,
        "rate": found.rate,
        "lower": found.lower,
        "upper": found.upper,
        "refused": found.refused,
    }


def worlds(args, seeds, **options):
    """`judge_world` over seeds, in processes."""
    from benchmarks.adapters.worlds import judge_world

    with tempfile.TemporaryDirectory() as folder:
        work = partial(judge_world, Path(folder), **options)
        if args.jobs == 1:
            return [work(seed) for seed in seeds]
        with ProcessPoolExecutor(args.jobs) as pool:
            return list(pool.map(work, seeds, chunksize=4))


def pipeline_part(args):
    """Null worlds, planted worlds and interval coverage through contract, runner and verdict."""
    from benchmarks.adapters.worlds import JOINT, claim_rates
    from validation.statistics.power import power_at

    start = time.perf_counter()
    null = worlds(args, range(10_000, 10_000 + args.runs), null=True)
    seconds = time.perf_counter() - start
    false = [flat(r) | {"at most 5%": r.at_most(0.05)} for r in claim_rates(null)]
    counts = {}
    for world in null:
        for item in world:
            key = f"{item.verdict} ({item.because})"
            counts[key] = counts.get(key, 0) + 1
    verdicts = [{"verdict in null worlds": k, "count": v} for k, v in sorted(counts.items())]
    yield f"False claims of the whole path ({args.runs} null worlds, {seconds:.0f} s)", false
    yield "Verdicts in null worlds", verdicts
    few = max(20, args.runs // 5)
    power, cover = [], []
    for hr in (1.3, 1.6, 2.0):
        clinical = Effects().without_biomarkers().as_dict()
        planted = Effects(**(clinical | {"fabp5_high_tls_low_hr": hr}))
        judged = [
            world[0]
            for world in worlds(
                args, range(20_000, 20_000 + few), effects=planted, hypotheses=(JOINT,)
            )
        ]
        events = round(statistics.mean(o.events for o in judged))
        claimed = rate("supported", (o.verdict == "supported" for o in judged))
        significant = rate("p", (o.p < 0.05 and o.value > 1 for o in judged))
        power.append(
            {
                "planted HR": hr,
                "worlds": few,
                "mean events": events,
                "supported": claimed.rate,
                "lower": claimed.lower,
                "upper": claimed.upper,
                "primary p < 0.05": significant.rate,
                "analytic": power_at(hr, events, fraction_exposed=0.28),
            }
        )
        alone = Effects(**(Effects.nothing().as_dict() | {"fabp5_high_tls_low_hr": hr}))
        judged = [
            world[0]
            for world in worlds(
                args, range(30_000, 30_000 + few), effects=alone, hypotheses=(JOINT,)
            )
        ]
        held = rate("interval holds the planted HR", (o.lower <= hr <= o.upper for o in judged))
        cover.append({"planted HR": hr} | flat(held))
    yield "Power of the whole path", power
    yield "Interval coverage of the whole path", cover


def worlds_part(args):
    """Hostile worlds: false claims by kind, power beside a plain adjusted test, cost of controls.

    Each world is a line of `validation_worlds.jsonl`, written as it ends: a run that was stopped
    goes on where it stood, one world of every kind after the other. Worlds judged under contracts
    of another format stay in the file and count no more.
    """
    from validation.contracts.contract import VERSION
    from validation.simulate.hostile import KINDS

    path = args.out / "validation_worlds.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    done = [world for line in lines if (world := json.loads(line)).get("format") == VERSION]
    have = {(world["kind"], world["seed"]) for world in done}
    wanted = [kind for kind in KINDS if args.kind in (None, kind.name)]
    todo = [
        (kind.name, seed)
        for seed in range(args.seed, args.seed + args.runs)
        for kind in wanted
        if (kind.name, seed) not in have
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        path.open("a", encoding="utf-8") as handle,
        ProcessPoolExecutor(args.jobs) as pool,
    ):
        for world in pool.map(partial(one_hostile, Path(folder)), todo):
            done.append(world)
            handle.write(json.dumps(world) + "\n")
            handle.flush()
    yield from worlds_tables([world for world in done if world["seed"] >= args.seed])


def one_hostile(folder, what):
    """One world as a line."""
    from dataclasses import asdict

    from benchmarks.adapters.worlds import judge_hostile
    from validation.contracts.contract import VERSION
    from validation.simulate.hostile import BY_NAME

    name, seed = what
    return asdict(judge_hostile(folder, BY_NAME[name], seed)) | {"format": VERSION}


def worlds_tables(done):
    """The published tables of hostile worlds."""
    from validation.simulate.hostile import KINDS

    false, power, cost = [], [], []
    for kind in KINDS:
        worlds = [world for world in done if world["kind"] == kind.name]
        if not worlds:
            continue
        claimed = sum(world["verdict"] == "supported" for world in worlds)
        direct = sum(world["direct"] for world in worlds)
        low, high = wilson(claimed, len(worlds))
        row = {
            "kind of world": kind.name,
            "worlds": len(worlds),
            "supported": f"{claimed / len(worlds):.1%} ({low:.1%} to {high:.1%})",
            "plain adjusted test": f"{direct / len(worlds):.1%}",
        }
        if not kind.true:
            met = "yes" if high <= 0.05 else "no" if low > 0.05 else "open"
            false.append(row | {"at most 5%": met})
            continue
        power.append(row | {"ratio": f"{claimed / direct:.2f}" if direct else "–"})
        for rule in sorted({rule for world in worlds for rule in world["prevents"]}):
            alone = sum(set(world["prevents"]) == {rule} for world in worlds)
            any_of = sum(rule in world["prevents"] for world in worlds)
            cost.append(
                {
                    "kind of world": kind.name,
                    "rule": rule,
                    "objects in": f"{any_of / len(worlds):.1%}",
                    "alone, so that without it there were more supported": (
                        f"{alone / len(worlds):.1%}"
                    ),
                }
            )
    if false:
        yield 'False "supported" by kind of world (95% Wilson intervals)', false
    if power:
        yield "Power where the exposure acts", power
    if cost:
        yield "What each rule costs in power", cost


def wilson(hits, runs):
    """Wilson's 95% interval of a share."""
    z = statistics.NormalDist().inv_cdf(0.975)
    share, middle = hits / runs, (hits + z * z / 2) / (runs + z * z)
    half = z / (1 + z * z / runs) * (share * (1 - share) / runs + z * z / (4 * runs**2)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


HYPOTHESES = {
    "rotterdam": ("pgr", ["age", "nodes", "er"]),
    "flchain": ("kappa", ["age", "creatinine"]),
}
"""Cohorts of R's survival package, as the tests hold them: the exposure and its covariates."""


def hypothesis_part(args):
    """One hypothesis with all controls, a second implementation and figures: 2,982 and 7,871
    patients.
    """
    from validation.cohort import load
    from validation.core.hypothesis import Hypothesis
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    rows = []
    for name, (exposure, covariates) in HYPOTHESES.items():
        claim = Hypothesis.model_validate(
            {
                "id": name,
                "statement": f"A high {exposure} goes with shorter survival.",
                "population": {"description": "all patients"},
                "exposures": [{"variable": f"clinical:{exposure}", "label": exposure}],
                "comparison": "exposed_vs_rest",
                "endpoint": "OS",
                "direction": "higher_risk",
                "covariates": [f"clinical:{key}" for key in covariates],
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            write_public(place / "cohort", name, [exposure, *covariates])
            start, before = time.perf_counter(), processor_seconds()
            cohort = load(place / "cohort")
            frozen = freeze(draft(claim, cohort.dictionary()), cohort)
            found = run(frozen, cohort, place / "out", ledger=Ledger(place / "ledger.jsonl"))
            rows.append(
                {
                    "cohort": name,
                    "patients": len(cohort.patients),
                    "events": found.test("primary").events,
                    "seconds": time.perf_counter() - start,
                    "processor s": processor_seconds() - before,
                    "verdict": found.verdict.badge,
                }
            )
    yield "One hypothesis with all controls", rows


def processor_seconds():
    """Of this process and of the children it waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def write_public(folder, name, columns):
    """A cohort of R's survival package as a folder; every column was known at the start."""
    import pandas as pd

    here = Path(__file__).resolve().parent.parent / "tests" / "validation" / "r" / "cohorts"
    table = pd.read_csv(here / f"{name}.csv.gz")
    table = table[table["time"] > 0].reset_index(drop=True)
    table.insert(0, "row", [f"P{at}" for at in range(len(table))])
    folder.mkdir()
    table.to_csv(folder / "table.csv", index=False)
    text = (
        f'known_at = "baseline"\nid = "{name}"\ntitle = "{name} of R\'s survival package"\n'
        'patient = { table = "all" }\ntables.all = { file = "table.csv", key = "row" }\n'
        '[endpoints.OS]\ntable = "all"\ntime = "time"\ntime_unit = "days"\nevent = "status"\n'
        "event_values = [1, 2]\ncensored_values = [0]\n"
    )
    for column in columns:
        text += f'[variables.{column}]\ntable = "all"\ncolumn = "x.{column}"\nkind = "continuous"\n'
    (folder / "cohort.toml").write_text(text, encoding="utf-8")


PARTS = {
    "worlds": worlds_part,
    "hypothesis": hypothesis_part,
    "screen": screen_part,
    "calibration": calibration_part,
    "competing": competing_part,
    "pipeline": pipeline_part,
}


def markdown(tables, command):
    """Tables as Markdown."""
    lines = [f"`{command}` on {os.cpu_count()} cores, Python {platform.python_version()}", ""]
    for title, rows in tables.items():
        keys = list(rows[0])
        lines += [f"**{title}**", "", "| " + " | ".join(keys) + " |", "|---" * len(keys) + "|"]
        lines += ["| " + " | ".join(shown(row[k]) for k in keys) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def shown(value):
    """A value in a table cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def main():
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", help="worlds: one kind alone")
    parser.add_argument("--seed", type=int, default=100_000, help="worlds: the first seed")
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--peer-features", type=int, default=100)
    parser.add_argument("--r-features", type=int, default=2_000, help="fitted by R's coxph.fit")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for part in PARTS if args.part == "all" else [args.part]:
        command = f"python benchmarks/validation.py {part} --runs {args.runs} --jobs {args.jobs}"
        tables = {}
        for title, rows in PARTS[part](args):
            tables[title] = rows
            print(markdown({title: rows}, command), flush=True)
            write(args.out / f"validation_{part}", tables, command)


def write(stem, tables, command):
    """What is known so far, as Markdown and JSON; a long run that is stopped keeps its results."""
    stem.with_suffix(".md").write_text(markdown(tables, command), encoding="utf-8")
    record = {"command": command, "tables": tables}
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
