"""How much less epsilon the same posterior costs than with the paper's mechanism, from the frontier's numbers."""

from __future__ import annotations

import json
from pathlib import Path

from abcdp.paper.common import make
from abcdp.paper.frontier import FAMILIES, FRONTIER, TARGET, budget_to_target
from bench.measure import machine


def main(results: Path) -> None:
    made = make(FRONTIER, results.parent.parent / "paper")
    numbers = json.loads(made.numbers.read_text())
    print(f"\nEpsilon to come within {TARGET:g} of the non-private error\n{machine()}")
    rows = []
    for problem in numbers["problems"]:
        for part in problem["accepts"]:
            print(f"{problem['model']}, {part['accept']} draws of {problem['draws']}, N = {problem['records']}")
            for family, curve in part["mechanisms"].items():
                least = budget_to_target(curve, part["non_private"]["error"])
                print(f"  {FAMILIES[family]:<34}{'none tried' if least is None else f'{least:g}':>12}")
                rows.append(
                    {"problem": problem["model"], "accept": part["accept"], "mechanism": family, "epsilon": least}
                )
    for claim in made.claims:
        print(claim.in_words())
    kept = {"machine": machine(), "target": TARGET, "rows": rows, "claims": [c.in_words() for c in made.claims]}
    (results / "frontier.json").write_text(json.dumps(kept, indent=1) + "\n")
