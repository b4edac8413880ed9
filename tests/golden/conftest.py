"""The switch that writes golden pages instead of comparing with them."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``; it is known where this folder is named on the command line."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the pages in tests/golden anew instead of comparing with them; review the diff in git",
    )
