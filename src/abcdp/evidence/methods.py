r"""A paragraph on methods and a table for a paper, in Markdown and LaTeX, with what they cite.

Sentences are written once, with marks such as ``[@dwork2006calibrating]``, which LaTeX cites as ``\cite{...}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from abcdp.evidence.entry import parameters_in_words
from abcdp.evidence.facts import Account, size_in_words
from abcdp.planning.plan import Plan
from abcdp.releases.release import Release

_CITED = re.compile(r"\[@([a-z0-9]+)\]")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "“": "``",
    "”": "''",
}
_BY_MECHANISM = {"sparse-vector": " [@park2021abcdp]", "nearest": " [@park2021abcdp]"}
_REFERENCES = {
    "park2021abcdp": """@article{park2021abcdp,
  author  = {Park, Mijung and Vinaroz, Margarita and Jitkrittum, Wittawat},
  title   = {{ABCDP}: Approximate {Bayesian} Computation with Differential Privacy},
  journal = {Entropy},
  volume  = {23},
  number  = {8},
  pages   = {961},
  year    = {2021},
  doi     = {10.3390/e23080961},
}""",
    "dwork2006calibrating": """@inproceedings{dwork2006calibrating,
  author    = {Dwork, Cynthia and McSherry, Frank and Nissim, Kobbi and Smith, Adam},
  title     = {Calibrating Noise to Sensitivity in Private Data Analysis},
  booktitle = {Theory of Cryptography},
  series    = {LNCS},
  volume    = {3876},
  pages     = {265--284},
  year      = {2006},
  doi       = {10.1007/11681878_14},
}""",
    "bun2016concentrated": """@inproceedings{bun2016concentrated,
  author    = {Bun, Mark and Steinke, Thomas},
  title     = {Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds},
  booktitle = {Theory of Cryptography},
  year      = {2016},
  doi       = {10.1007/978-3-662-53641-4_24},
}""",
    "gong2019exact": """@misc{gong2019exact,
  author = {Gong, Ruobin},
  title  = {Exact Inference with Approximate Computation for Differentially Private Data via Perturbations},
  year   = {2019},
  eprint = {1909.12237},
  archivePrefix = {arXiv},
}""",
    "abcdp": """@software{abcdp,
  author  = {{The abcdp authors}},
  title   = {abcdp: {Bayesian} inference for simulators on data that may not be shared},
  version = {VERSION},
  year    = {2026},
}""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Sentences and the rows of a table, as they are written in Markdown."""

    release: Release
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]

    def markdown(self) -> str:
        """Return paragraph and table as Markdown."""
        table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in self.rows)
        return f"{' '.join(self.sentences)}\n\n| what | value |\n|---|---|\n{table}\n"

    def latex(self) -> str:
        """Return paragraph and table as LaTeX, for `references.bib`."""
        text = "\n".join(_latex(sentence) for sentence in self.sentences)
        rows = "\n".join(rf"  {_latex(name)} & {_latex(value)} \\" for name, value in self.rows)
        title = _latex(f"The private release of {self.release.dataset}.")
        columns = r"{lp{0.68\linewidth}}"
        table = f"\\begin{{tabular}}{columns}\n  \\hline\n{rows}\n  \\hline\n\\end{{tabular}}"
        return f"{text}\n\n\\begin{{table}}\n\\caption{{{title}}}\n{table}\n\\end{{table}}\n"

    def bibtex(self) -> str:
        """Return what the sentences cite as BibTeX."""
        found = (name for sentence in self.sentences for name in _CITED.findall(sentence))
        named = dict.fromkeys(name for name in found if name in _REFERENCES)
        version = self.release.software.removeprefix("abcdp ")
        return "\n\n".join(_REFERENCES[name].replace("VERSION", version) for name in named) + "\n"


def methods_of(
    release: Release, account: Account | None = None, plan: Plan | None = None, method: str | None = None
) -> Methods:
    """Return what a paper says of a release; `method` is how its posterior was made, where one was."""
    rows = _rows(release, account, plan, method)
    return Methods(release=release, sentences=tuple(_sentences(release, account, plan, method)), rows=tuple(rows))


def _sentences(release: Release, account: Account | None, plan: Plan | None, method: str | None) -> list[str]:
    guarantee, bank = release.guarantee, release.bank
    loss = parameters_in_words(guarantee.epsilon, guarantee.delta)
    told = [(release.description or "").rstrip("."), size_in_words(account.dataset) if account else ""]
    about = f" ({'; '.join(filter(None, told))})" if any(told) else ""
    said = [
        f"Parameters of the simulator {release.model} ({', '.join(release.parameters)}) were inferred from the dataset "
        f"{release.dataset}{about}, whose records stayed with their owner.",
        f"A public bank of {bank.draws} simulated datasets was drawn from the prior"
        + (f", of which {bank.failed} failed" if bank.failed else "")
        + ".",
        f"The owner answered by {release.mechanism.describe(release.outcome, bank.draws)}"
        f"{_BY_MECHANISM.get(release.mechanism.kind, '')}. The answer is differentially private "
        f"[@dwork2006calibrating] with {loss}, where neighbouring datasets differ by {guarantee.unit.describe()}.",
        guarantee.describe_basis(),
        *([guarantee.describe_totals()] if guarantee.totals else []),
        "Noise was drawn as exact integers.",
    ]
    if release.seeded:
        said.append("The noise was seeded, on public data: nobody was protected.")
    if account is not None:
        said.append(_together(account))
    if plan is not None:
        chosen = plan.chosen
        said.append(
            f"The mechanism and its settings were chosen on {plan.truths} simulated datasets alone, where the "
            f"posterior mean had a root mean square error of {chosen.error.mean:.3g} (standard error "
            f"{chosen.error.error:.2g}) in units of the prior's spread and nominal 90 % intervals held the truth in "
            f"{100 * chosen.coverage.mean:.0f} % of cases."
        )
    if method is not None:
        exact = " [@gong2019exact]" if release.summary is not None and "weights" in method else ""
        said.append(f"The posterior was made of the release and the bank by “{method}”{exact}.")
    return [*said, f"All of this was done with {release.software} [@abcdp]."]


def _together(account: Account) -> str:
    loss = parameters_in_words(*account.together)
    if account.dataset.accounting == "rho":
        return (
            f"It is release {account.number} of {account.count} of these records; all of them together stay within "
            f"{loss}, by concentrated privacy [@bun2016concentrated]."
        )
    return f"It is release {account.number} of {account.count} of these records; with all before it they have {loss}."


def _rows(release: Release, account: Account | None, plan: Plan | None, method: str | None) -> list[tuple[str, str]]:
    guarantee = release.guarantee
    rows = [
        ("dataset", release.dataset),
        *([("records", size_in_words(account.dataset))] if account else []),
        ("model", release.model),
        ("parameters", ", ".join(release.parameters)),
        ("bank", f"{release.bank.draws} draws, digest {release.bank.digest[:16]}"),
        ("mechanism", release.mechanism.kind),
        ("guarantee", parameters_in_words(guarantee.epsilon, guarantee.delta)),
        ("unit", guarantee.unit.describe()),
        ("sensitivity", f"{guarantee.sensitivity:.6g} ({guarantee.basis})"),
        ("noise", release.noise),
    ]
    if account is not None:
        rows.append(("all releases so far", parameters_in_words(*account.together)))
        rows.append(
            ("budget", f"{account.total}; left {account.left_now}".replace("ε", "epsilon").replace("δ", "delta"))
        )
    if plan is not None:
        rows.append(("expected error", f"{plan.chosen.error.mean:.3g} ± {plan.chosen.error.error:.2g}"))
    if method is not None:
        rows.append(("posterior", method))
    return [*rows, ("release", f"sha256 {release.digest[:16]}"), ("software", release.software)]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _latex(text: str) -> str:
    parts = re.split(r"(\[@[a-z0-9]+\])", text)
    return "".join(
        rf"\cite{{{part[2:-1]}}}" if _CITED.fullmatch(part) else "".join(_SPECIAL.get(c, c) for c in part)
        for part in parts
    )
