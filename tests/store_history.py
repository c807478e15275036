"""Judges what processes saw of a store, from the logs that nmc_store_tool leaves (tests/tools/store_workload.h).

Each key is judged by itself. A write took effect at some time between its begin and its end, or at any later time when
it failed without saying that it didn't happen; a put of a key that is taken has none. From that follow the rules:
  - a read returns a value that was written under its key, by a write that had begun, and that wasn't refused;
  - not one that was superseded before the read began: something else took effect on the key, for sure, after the
    write's end and before the read's begin (an upsert, a removal, or any write whose value somebody has read);
  - a key that is kept (nobody evicts it) is found once a write has ended, unless something may have removed it since.
All times are from one clock, so the rules hold without any assumption on how the store works."""

import bisect
import dataclasses
import math

WRITES, REMOVALS = set("puPU"), set("xr")
REPLACES = set("uU")
MISSED = -704
# Answers that say: this had no effect. All other failures leave it open: -601 may follow a commit whose answer was
# lost with the master.
REFUSED = {-200, -400, -600, -706, -800}


@dataclasses.dataclass
class Operation:
    process: str
    kind: str
    key: str
    begin: int
    end: float = math.inf      # of the answer; stays infinite when none came
    outcome: int | None = None  # below 0: a code; None: no answer
    seed: int = 0               # of the value written, or read (0: it was only probed)

    def happened(self):
        return self.outcome is not None and self.outcome >= 0

    def may_happen_until(self):
        """After that it has no effect any more. A removal that missed may have been asked twice, the first time with
        effect: a client repeats it where the master died before the answer."""
        settled = self.outcome is not None and (self.outcome >= 0 or self.outcome in REFUSED | {MISSED})
        return self.end if settled else math.inf

    def was_refused(self):
        return self.outcome in REFUSED


def read_log(path, process):
    """Its operations, and the lines that say of wrong bytes."""
    operations, wrong, asked = [], [], []
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        mark, rest = line.split(" ", 1)
        if mark == "w":
            wrong.append(f"{process}: {rest}")
        elif mark == "b":
            at, kind, *keys = rest.split(" ")
            asked = []
            for word in keys:
                key, _, seed = word.partition(":")
                asked.append(Operation(process, kind, key, int(at), seed=int(seed or 0)))
            operations += asked
        else:
            at, *outcomes = map(int, rest.split(" "))
            for operation, outcome in zip(asked, outcomes, strict=True):
                operation.end, operation.outcome = at, outcome
                if operation.kind not in WRITES:
                    operation.seed = max(outcome, 0)
    return operations, wrong


class KeyHistory:
    """The operations on one key."""

    def __init__(self, operations):
        self.writes = {op.seed: op for op in operations if op.kind in WRITES}
        self.removals = [op for op in operations if op.kind in REMOVALS]
        self.reads = [op for op in operations if op.kind not in WRITES]
        self._learn_effects()
        self._learn_removals()

    def _learn_effects(self):
        """When each write and removal had taken effect for sure; then from when on an older value is superseded."""
        effects = {}
        for seed, write in self.writes.items():
            if write.kind in REPLACES and write.happened():
                effects[seed] = write.end
        for read in self.reads:
            if read.seed in self.writes:
                effects[read.seed] = min(effects.get(read.seed, math.inf), read.end)
        known = [(self.writes[seed].begin, at) for seed, at in effects.items()]
        known += [(op.begin, op.end) for op in self.removals if op.happened()]
        known.sort()
        self._begins = [begin for begin, _ in known]
        self._earliest_from = [math.inf] * (len(known) + 1)
        for i in reversed(range(len(known))):
            self._earliest_from[i] = min(known[i][1], self._earliest_from[i + 1])

    def superseded_at(self, write):
        after = bisect.bisect_right(self._begins, write.may_happen_until())
        return self._earliest_from[after]

    def _learn_removals(self):
        may_remove = sorted((op.begin, op.may_happen_until()) for op in self.removals if not op.was_refused())
        self._removal_begins = [begin for begin, _ in may_remove]
        self._removed_until = [-math.inf]
        for _, until in may_remove:
            self._removed_until.append(max(self._removed_until[-1], until))
        done = sorted((op.end, op.begin) for op in self.writes.values() if op.happened())
        self._write_ends = [end for end, _ in done]
        self._last_begin = [-math.inf]
        for _, begin in done:
            self._last_begin.append(max(self._last_begin[-1], begin))

    def must_be_found(self, begin, end):
        """Whether a read in that time has to find the key, if nobody evicts it."""
        written = self._last_begin[bisect.bisect_left(self._write_ends, begin)]
        removed_until = self._removed_until[bisect.bisect_right(self._removal_begins, end)]
        return written > -math.inf and removed_until < written

    def faults(self, kept, is_excused):
        for read in self.reads:
            if read.outcome is None:
                continue
            if read.outcome == MISSED:
                if kept and self.must_be_found(read.begin, read.end) and not is_excused(read):
                    yield f"false miss: {read}"
            elif read.happened():
                yield from self._faults_of_found(read)

    def _faults_of_found(self, read):
        if read.seed == 0:
            alive = any(write.begin <= read.end and not write.was_refused() and self.superseded_at(write) >= read.begin
                        for write in self.writes.values())
            if not alive:
                yield f"found, though all that was written is gone: {read}"
            return
        write = self.writes.get(read.seed)
        if write is None:
            yield f"a value that nobody wrote under this key: {read}"
        elif write.begin > read.end:
            yield f"a value from the future: {read} of {write}"
        elif write.was_refused():
            yield f"a value whose write was refused: {read} of {write}"
        elif (gone := self.superseded_at(write)) < read.begin:
            yield f"a superseded value, gone at {gone}: {read} of {write}"


def by_key(operations):
    keys = {}
    for operation in operations:
        keys.setdefault(operation.key, []).append(operation)
    return keys


def story_of(operations, key, count=60):
    """What was asked of a key lately, for people: each process, from when to when, what came of it."""
    those = sorted((op for op in operations if op.key == key), key=lambda op: op.begin)[-count:]
    start = those[0].begin if those else 0
    return "\n".join(f"{(op.begin - start) / 1e6:10.3f} to {(op.end - start) / 1e6:10.3f} ms  {op.process}: "
                     f"{op.kind} {op.outcome} {op.seed or ''}" for op in those)


def find_faults(operations, kept_prefixes=(), is_excused=lambda read: False):
    """What breaks a rule, in words. `is_excused`: of a read that missed, whether it may."""
    faults = []
    for key, those in by_key(operations).items():
        faults += KeyHistory(those).faults(key.startswith(tuple(kept_prefixes)), is_excused)
    return faults
