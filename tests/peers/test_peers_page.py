"""The page about the reports lists those that are tested, and no others."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[#(\d+)\]\(https://github\.com/[\w.-]+/[\w.-]+/issues/(\d+)\)")


def test_the_page_lists_the_tested_reports() -> None:
    listed: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "peers.md").read_text(encoding="utf-8").splitlines():
        if found := LINK.findall(line):
            assert all(shown == linked for shown, linked in found)
            (target,) = re.findall(r"\]\(\.\./(tests/[\w/]+\.py)\)", line)
            listed.setdefault(target, set()).update(shown for shown, _ in found)
    tested = {
        path.relative_to(ROOT).as_posix(): set(re.findall(r"#(\d+)", path.read_text(encoding="utf-8")))
        for path in [*Path(__file__).parent.glob("test_peers_*.py"), ROOT / "tests" / "test_soak.py"]
        if path != Path(__file__)
    }
    assert listed == tested
