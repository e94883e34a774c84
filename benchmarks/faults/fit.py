"""Fits the weights of the rules' claims (`sonde.diagnosis.weights`) to runs of tuning seeds, and writes them anew.

The model is the ranking's own: a cause's score is its prior, plus the weight of each of its rows whose sign was seen,
less the cost of each whose sign was not; probabilities are the softmax of all causes and "none of these". The penalised
likelihood is maximised, Σ log P(true cause) − ½λ‖θ − θ₀‖², where θ₀ are the numbers that stand there: claims are only
ever written by hand, in the rules, and few runs move them little. Runs of one cause count together as much as those of
another.

Numbers that hardly move give modest confidences. So all of them are multiplied by one number, the one with which the
confidence of the first cause foretells best whether it is right in runs that were left out.

FOLDER is of `benchmarks.faults.run`, whose scenarios are left out in turn, or of `benchmarks.faults.space`, whose
families are: what the figures of those left out say is to be expected of trainings that nothing was tuned on. Families
that are put aside are refused.

Usage: python -m benchmarks.faults.fit FOLDER... [--seeds even] [--strength λ] [--jobs N] [--list] [--write]
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.run import catalogue
from benchmarks.faults.scenario import Scenario
from benchmarks.faults.space import judged, keeping
from benchmarks.faults.space.labels import Label
from benchmarks.faults.space.wild import fault_named

import sonde
from sonde.core.causes import Cause
from sonde.core.findings import Finding
from sonde.diagnosis import weights as written
from sonde.diagnosis.evidence import Table, rows_of
from sonde.diagnosis.signs import Signs
from sonde.rules.catalogue import own_rules

CAUSES = list(Cause)
ROWS, TABLE, SIGNS = rows_of(own_rules()), Table(own_rules()), Signs(own_rules())
SEEDS: dict[str, Callable[[int], bool]] = {
    "even": lambda seed: seed % 2 == 0,
    "odd": lambda seed: seed % 2 == 1,
    "all": lambda seed: True,
}
STEPS = 400


def look_at(folder: Path, name: str, seed: int, twin: bool) -> dict[str, Any]:
    """What is found in a recorded run."""
    path = folder / name / f"{seed}-{'twin' if twin else 'faulty'}"
    return {
        "name": name,
        "seed": seed,
        "twin": twin,
        "findings": [finding.to_json() for finding in sonde.diagnose(path)],
    }


def of_space(folder: Path, jobs: int) -> list[dict[str, Any]]:
    """All labelled runs of a space of trainings but the harmless ones; what was found is kept likewise."""
    cache = folder / "found.jsonl"
    labels = [Label(**json.loads(line)) for line in (folder / "labels.jsonl").read_text().splitlines()]
    labels = [label for label in labels if label.kind in ("faulty", "healthy", "twin")]
    judged.allow([label.family for label in labels], put_aside=False)
    if not cache.exists():
        with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
            cache.write_text("".join(pool.map(_look_at_key, [folder] * len(labels), labels, chunksize=8)))
    found = {told["key"]: told["findings"] for told in map(json.loads, cache.read_text().splitlines())}
    runs = []
    for label in labels:
        fault = fault_named(label.family, label.fault) if label.kind == "faulty" else None
        right = [cause for cause in ({fault.cause, *fault.also} if fault else ()) if cause in set(Cause)]
        findings = [Finding.from_json(plain) for plain in found[label.key]]
        if fault is None or (right and any(finding.severity.is_alarm for finding in findings)):
            some = sorted(SIGNS.seen(findings, SIGNS.first_onset(findings)))
            runs.append({"name": label.family, "seed": label.key, "right": sorted(right), "signs": some})
    return runs


def _look_at_key(folder: Path, label: Label) -> str:
    with keeping.unpacked(folder, label.key) as path:
        findings = [finding.to_json() for finding in sonde.diagnose(path)]
    return json.dumps({"key": label.key, "findings": findings}) + "\n"


def gathered(folder: Path, seeds: Callable[[int], bool], jobs: int) -> list[dict[str, Any]]:
    """All runs of these seeds; what was found in them is kept in `found.jsonl` for the next time."""
    if (folder / "labels.jsonl").exists():
        return of_space(folder, jobs)
    cache = folder / "found.jsonl"
    if not cache.exists():
        told = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        todo = {(row["name"], row["seed"], row["twin"]) for row in told if seeds(row["seed"]) and "error" not in row}
        with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
            found = [pool.submit(look_at, folder, *one) for one in sorted(todo)]
            cache.write_text("".join(json.dumps(one.result()) + "\n" for one in found))
    scenarios = catalogue()
    return [run for line in cache.read_text().splitlines() if (run := shown(scenarios, json.loads(line))) is not None]


def shown(scenarios: Mapping[str, Scenario], run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The signs that a run shows, and the right causes; None where it is faulty and shows no alarm."""
    findings = [Finding.from_json(plain) for plain in run["findings"]]
    scenario = scenarios[run["name"]]
    right = [] if run["twin"] else sorted({str(scenario.cause), *map(str, scenario.also)})
    if right and not any(finding.severity.is_alarm for finding in findings):
        return None
    some = sorted(SIGNS.seen(findings, SIGNS.first_onset(findings)))
    return {"name": run["name"], "seed": run["seed"], "right": right, "signs": some}


def features(runs: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Runs × rows: whether the row's sign was seen."""
    return np.array([[row.sign in run["signs"] for row in ROWS] for run in runs], float)


def targets(runs: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Runs × (causes + none): which answers are right."""
    right = np.zeros((len(runs), len(CAUSES) + 1))
    for place, run in enumerate(runs):
        answers = [CAUSES.index(Cause(cause)) for cause in run["right"]]
        right[place, answers or [len(CAUSES)]] = 1
    return right


def probabilities(theta: np.ndarray[Any, Any], seen: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Runs × (causes + none)."""
    num = len(ROWS)
    weights, costs, priors = theta[:num], theta[num : 2 * num], theta[2 * num :]
    parts = seen * weights - (1 - seen) * costs
    scores = np.concatenate([parts @ MEMBERSHIP + priors, np.zeros((len(seen), 1))], axis=1)
    scores -= scores.max(axis=1, keepdims=True)
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


MEMBERSHIP = np.array([[row.cause is cause for cause in CAUSES] for row in ROWS], float)


def fit(runs: list[dict[str, Any]], strength: float) -> np.ndarray[Any, Any]:
    """The numbers of the table, by gradient ascent with Adam's steps; those of a cause that no run has stay."""
    seen, right = features(runs), targets(runs)
    names = ["|".join(sorted(run["right"])) for run in runs]
    counts = {name: names.count(name) for name in names}
    share = np.array([1 / counts[name] if name else 0.02 for name in names])[:, None]
    start = np.concatenate(
        [[row.weight for row in ROWS], [row.cost for row in ROWS], [TABLE.prior(cause) for cause in CAUSES]]
    )
    there = right[:, :-1].any(axis=0)
    moves = np.concatenate([MEMBERSHIP @ there, MEMBERSHIP @ there, there])
    theta, m, v = start.copy(), 0.0 * start, 0.0 * start
    for step in range(1, STEPS + 1):
        p = probabilities(theta, seen)
        posterior = p * right
        posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-30)
        push = ((posterior - p) * share)[:, :-1]  # of the scores
        by_row = push @ MEMBERSHIP.T
        gradient = np.concatenate([(by_row * seen).sum(0), -(by_row * (1 - seen)).sum(0), push.sum(0)])
        gradient -= strength * (theta - start)
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        theta += 0.05 * moves * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
        theta[len(ROWS) : 2 * len(ROWS)] = np.maximum(theta[len(ROWS) : 2 * len(ROWS)], 0.0)
    return theta


def accuracy(theta: np.ndarray[Any, Any], runs: list[dict[str, Any]]) -> tuple[float, float]:
    """How often the right cause is first, and among the first two, of the faulty runs."""
    faulty = [run for run in runs if run["right"]]
    order = np.argsort(-probabilities(theta, features(faulty))[:, :-1], axis=1)
    right = targets(faulty)
    firsts = [bool(right[place, row[0]]) for place, row in enumerate(order)]
    seconds = [bool(right[place, row[:2]].any()) for place, row in enumerate(order)]
    return float(np.mean(firsts)), float(np.mean(seconds))


def likelihood(theta: np.ndarray[Any, Any], run: dict[str, Any]) -> float:
    """The logarithm of what is given to the right causes of a run."""
    return float(np.log((probabilities(theta, features([run])) * targets([run])).sum() + 1e-9))


def firsts(
    pairs: Sequence[tuple[np.ndarray[Any, Any], dict[str, Any]]], factor: float
) -> tuple[list[float], list[float]]:
    """Confidences of the first causes, with all numbers multiplied, and whether they are right."""
    given = [probabilities(factor * theta, features([run]))[0, :-1] for theta, run in pairs]
    answers = zip(given, pairs, strict=True)
    return [one.max() for one in given], [float(targets([run])[0, one.argmax()]) for one, (_, run) in answers]


def sharpness(pairs: Sequence[tuple[np.ndarray[Any, Any], dict[str, Any]]]) -> float:
    """The factor with which confidences of runs that were left out say best whether the first cause is right."""

    def loss(factor: float) -> float:
        confidences, rights = map(np.array, firsts(pairs, factor))
        sure = np.clip(confidences, 1e-3, 1 - 1e-3)
        return float(-np.mean(rights * np.log(sure) + (1 - rights) * np.log(1 - sure)))

    return min(np.arange(0.5, 3, 0.1).tolist(), key=loss)


def miscalibration(confidences: list[float], rights: list[float]) -> float:
    """Expected calibration error: how far tenths of confidence are from how often they were right, on average."""
    given, right = np.array(confidences), np.array(rights)
    tenths = np.minimum((10 * given).astype(int), 9)
    return float(sum(abs((given - right)[tenths == tenth].sum()) for tenth in range(10)) / len(given))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+", help="what `run` recorded, or `space` trained")
    parser.add_argument("--seeds", choices=SEEDS, default="even", help="of `run`; even ones are for tuning")
    parser.add_argument("--strength", type=float, default=0.3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suggest", action="store_true", help="print cells of the table that would help most")
    parser.add_argument("--list", action="store_true", help="print the runs whose cause is not first")
    parser.add_argument("--write", action="store_true", help="replace the numbers in the table's source")
    options = parser.parse_args()
    tuning = [run for folder in options.folder for run in gathered(folder, SEEDS[options.seeds], options.jobs)]
    start = np.concatenate([[row.weight for row in ROWS], [row.cost for row in ROWS], [TABLE.prior(c) for c in CAUSES]])
    print("as it stands: first {:.1%}, first two {:.1%}".format(*accuracy(start, tuning)))
    # Leaving out every run of a scenario or family tells what to expect of trainings that are not in the collection.
    names = sorted({run["name"] for run in tuning})
    out = []
    for fold in (set(names[place::10]) for place in range(10)):
        theta = fit([run for run in tuning if run["name"] not in fold], options.strength)
        some = [run for run in tuning if run["name"] in fold and run["right"]]
        out += [(theta, run) for run in some]
    told = [(*accuracy(theta, [run]), likelihood(theta, run)) for theta, run in out]
    print("left out: first {:.1%}, first two {:.1%}, log-likelihood {:.3f}".format(*np.mean(told, axis=0)))
    factor = sharpness(out)
    before, after = (miscalibration(*firsts(out, one)) for one in (1.0, factor))
    print(f"calibration error of the left out: {before:.3f}, and {after:.3f} with all numbers times {factor:.1f}")
    theta = factor * fit(tuning, options.strength)
    print("fitted: first {:.1%}, first two {:.1%}".format(*accuracy(theta, tuning)))
    if options.list:
        for run in tuning:
            order = np.argsort(-probabilities(theta, features([run]))[0, :-1])[:3]
            if run["right"] and CAUSES[order[0]].value not in run["right"]:
                suspects = ", ".join(CAUSES[place].value for place in order)
                print(f"{run['name']}/{run['seed']}: {suspects}; signs {' '.join(run['signs'])}")
    if options.suggest:
        suggest(theta, tuning)
    if options.write:
        write(theta)


def suggest(theta: np.ndarray[Any, Any], runs: list[dict[str, Any]], num: int = 60) -> None:
    """The cells without a row whose weight the likelihood would move most; whether they make sense is for us to say."""
    p, right = probabilities(theta, features(runs)), targets(runs)
    posterior = p * right
    posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-30)
    push = (posterior - p)[:, :-1]
    known = {(row.cause, row.sign) for row in ROWS}
    found = []
    for sign in sorted({sign for run in runs for sign in run["signs"]}):
        seen = np.array([sign in run["signs"] for run in runs], float)
        pulls = seen @ push
        found += [(pulls[i], cause, sign) for i, cause in enumerate(CAUSES) if (cause, sign) not in known]
    for pull, cause, sign in sorted(found, key=lambda one: -abs(one[0]))[:num]:
        print(f"{pull:+.2f} {cause.name} {sign}")


def write(theta: np.ndarray[Any, Any]) -> None:
    """Make `sonde/diagnosis/weights.py` anew."""
    path, num = Path(written.__file__), len(ROWS)
    claims: dict[str, list[str]] = {}
    for place, row in enumerate(ROWS):
        pair = f"({_short(theta[place])}, {_short(theta[num + place])})"
        claims.setdefault(row.code, []).append(f'"{row.cause}{row.when}": {pair},')
    head = path.read_text().partition("WEIGHTS")[0]
    lines = ["WEIGHTS: dict[str, dict[str, tuple[float, float]]] = {"]
    for code, items in sorted(claims.items()):
        lines += _filled([f'"{code}": {{{items[0]}', *items[1:], "},"])
    lines += ["}", "PRIORS: dict[str, float] = {"]
    lines += _filled([f'"{cause}": {_short(value)},' for cause, value in zip(CAUSES, theta[2 * num :], strict=True)])
    path.write_text(head + "\n".join([*lines, "}"]) + "\n")


def _short(value: float) -> str:
    return f"{round(value, 1) + 0.0:g}"


def _filled(items: list[str]) -> list[str]:
    """Lines of as many items as fit; an item is never broken."""
    text = " ".join(item.replace(" ", "\0") for item in items)
    lines = textwrap.wrap(text, 112, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [f"    {line}".replace("\0", " ") for line in lines]


if __name__ == "__main__":
    main()
