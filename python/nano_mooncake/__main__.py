"""`python -m nano_mooncake COMMAND ...` is `nano-mooncake COMMAND ...`."""

from mooncake.cli import run

if __name__ == "__main__":
    run("nano-mooncake")
