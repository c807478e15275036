"""The console scripts: the program that the package carries, under the name it was called by."""

import os
import pathlib
import sys
from typing import NoReturn

import mooncake


def program() -> pathlib.Path:
    """Installed to be edited, the package lies in two places: its Python in the tree, what was built apart."""
    places = [pathlib.Path(folder, "bin", "nano-mooncake") for folder in mooncake.__path__]
    return next((place for place in places if place.is_file()), places[0])


def run(name: str) -> NoReturn:
    """Becomes the program, so that the process id stays and signals reach it. `name` says which of its commands."""
    path = program()
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}")


def main() -> NoReturn:
    """Every console script's entry: what it is called decides, as with links to the program. Otherwise the master."""
    name = pathlib.Path(sys.argv[0]).name
    run(name if name.startswith(("nano-mooncake", "mooncake_")) else "mooncake_master")


if __name__ == "__main__":
    main()
