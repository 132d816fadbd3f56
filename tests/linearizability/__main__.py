"""Check published histories: `python tests/linearizability FILE...`; the exit code is 1 if one is not linearizable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from linearizability import checker, history


def main(names: list[str]) -> int:
    if not names:
        print(__doc__, file=sys.stderr)
        return 2
    accepted = True
    for name in names:
        operations = history.read(Path(name))
        print(f"{name}: {len(operations)} operations")
        for verdict in checker.check(operations):
            print(verdict)
            accepted = accepted and verdict.accepted
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
