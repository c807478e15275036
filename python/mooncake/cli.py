"""The console scripts: the program that the package carries, under the name it was called by."""

import os
import pathlib
import sys
from typing import NoReturn

PROGRAM = pathlib.Path(__file__).parent / "bin" / "nano-mooncake"


def run(name: str) -> NoReturn:
    """Becomes the program, so that the process id stays and signals reach it."""
    try:
        os.execv(PROGRAM, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {PROGRAM}: {error.strerror}")


def main() -> NoReturn:
    run("mooncake_master")


def http_metadata_server() -> NoReturn:
    run("mooncake_http_metadata_server")


if __name__ == "__main__":
    main()
