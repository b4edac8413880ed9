"""Write the rules: ``python -m alerts [--thresholds FILE] [--output DIR]``."""

import argparse
import sys
from pathlib import Path

from alerts.thresholds import ThresholdError, load_thresholds
from alerts.write import rule_files

HERE = Path(__file__).parent


def main() -> int:
    """Write all files; return the exit code, 2 if the thresholds are invalid."""
    parser = argparse.ArgumentParser(prog="python -m alerts", description="Write the rules for Prometheus.")
    parser.add_argument("--thresholds", type=Path, metavar="FILE", help="TOML file with your own thresholds")
    parser.add_argument("--output", type=Path, default=HERE, metavar="DIR", help="default: %(default)s")
    arguments = parser.parse_args()
    try:
        made = rule_files(load_thresholds(arguments.thresholds))
    except ThresholdError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for path, text in made.items():
        target = arguments.output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
