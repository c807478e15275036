"""Fixtures shared by the Python tests."""

import os
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build_dir():
    """The build folder under test: ctest names it, by hand it is preset release's."""
    path = pathlib.Path(os.environ.get("NMC_BUILD_DIR", REPOSITORY / "build" / "release"))
    assert path.is_dir(), f"{path} isn't there; build first (make build) or set NMC_BUILD_DIR"
    return path


@pytest.fixture(scope="session")
def bin_dir():
    """The folder of the built programs, from NMC_BIN_DIR or preset release."""
    path = pathlib.Path(os.environ.get("NMC_BIN_DIR", REPOSITORY / "build" / "release" / "bin"))
    assert path.is_dir(), f"{path} isn't there; build first (make build) or set NMC_BIN_DIR"
    return path
