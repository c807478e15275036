"""Waiting for what another process does."""

import threading
import time


def eventually(check, what, timeout_s=60):
    """The first true value of check(). When none came it fails with `what`: text, or a function that makes it."""
    until, pause = time.monotonic() + timeout_s, threading.Event()
    while not (value := check()):
        assert time.monotonic() < until, f"not within {timeout_s} s: {what() if callable(what) else what}"
        pause.wait(0.002)  # between two looks, not in place of one
    return value
