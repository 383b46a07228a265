from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_examples_of_the_readme_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    code = "\n".join(blocks)
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        env={"ABCDP_STATE": str(tmp_path), "HOME": str(tmp_path)},
    )


def test_the_model_of_the_readme_is_learned_whole(tmp_path):
    """Its first example and what is learned on it, without a warning, and the prior that straight lines fail on."""
    first = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    wide = first.replace("stats.norm(0, 1)", "stats.norm(0, 5)").replace(
        "stats.uniform(0.5, 2.5)", "stats.uniform(0.1, 5)"
    )
    wide = wide.replace("(-10, 10)", "(-20, 20)").replace('"bank/"', '"wide/"')
    checks = """
import warnings, pytest
warnings.simplefilter("error")
learned = abcdp.learn(bank, epsilon=2.0)
assert min(learned.explained.values()) > 0.7, learned.explained
"""
    subprocess.run([sys.executable, "-c", first + checks + wide + checks], cwd=tmp_path, check=True)


def test_the_commands_of_the_readme_are_targets():
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    for command in re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.M):
        assert command in targets
