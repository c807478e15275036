"""The line `ready ADDRESS` by which each server of ours says that it serves."""

import re
import threading


class ReadyLine:
    """Reads a server's lines, in a thread of its own, until it ends. Another's line is told apart by `pattern`, whose
    first group is its address."""

    def __init__(self, stream, pattern=r"ready (\S+)"):
        self.lines = []  # all of them so far, with their ends
        self.address = None  # of the line, once it came
        self._stream, self._pattern, self._settled = stream, re.compile(pattern), threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._stream:
            self.lines.append(line)
            found = self._pattern.match(line) if self.address is None else None
            if found:
                self.address = found[1]
                self._settled.set()
        self._settled.set()  # it ended: there is nothing more to wait for

    def wait(self, timeout_s, what="the server"):
        """The address. Fails with all it said when it ended, or said nothing for so long."""
        settled = self._settled.wait(timeout_s)
        said = "".join(self.lines)
        assert settled and self.address is not None, f"{what} was not ready within {timeout_s} s:\n{said}"
        return self.address

    def close(self, timeout_s):
        """After its process ended."""
        self._reader.join(timeout_s)
        self._stream.close()
