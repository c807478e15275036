"""`python -m nano_mooncake.demo` is `nano-mooncake-demo`."""

from mooncake.cli import run

if __name__ == "__main__":
    run("nano-mooncake-demo")
