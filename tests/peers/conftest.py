"""Comparisons with other implementations. They are no part of `make test`: they need packages that are large or not
free to install everywhere. PEERS_ENV=DIR of `make test-peers` names a Python environment that has them; what it lacks
is skipped by name."""

import pathlib
import subprocess

import pytest


def pytest_addoption(parser):
    parser.addoption("--peers-env", default="", help="Python environment that has the other implementations")
    parser.addoption("--checkpoint", default="", help="checkpoint folder with a tokenizer, for clients that want one")


@pytest.fixture(scope="session")
def reference_python(request):
    """Runs code in the reference environment; skips, naming the module, where that isn't there."""
    folder = request.config.getoption("--peers-env")
    if not folder:
        pytest.skip("no reference environment; make test-peers PEERS_ENV=DIR of a venv that has the peers")
    python = pathlib.Path(folder) / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"no Python at {python}")

    def run(code, *arguments, needs=()):
        for module in needs:
            probe = subprocess.run([python, "-c", f"import {module}"], capture_output=True)
            if probe.returncode != 0:
                pytest.skip(f"{folder} has no module {module}")
        done = subprocess.run([python, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
