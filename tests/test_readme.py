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


def test_the_commands_of_the_readme_are_targets():
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    for command in re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.M):
        assert command in targets
