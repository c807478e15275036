"""The restart matrix: master, owner of memory, writer and reader are killed or stopped, at failpoints or at any moment,
in every order, while the others work; then what died is started again. After each round the history of all processes is
judged (store_history.py): no wrong byte, nothing superseded, no miss for what is committed, not removed, and lies in
memory whose owner lives or was started again; and nothing is left over.

NMC_RESTART_ROUNDS and NMC_RESTART_SEED choose how many rounds, and which; a failure names its round's seed, which alone
as NMC_RESTART_SEED with one round repeats the faults (not the scheduler's part)."""

import os
import random
import re
import time

import pytest
from store_history import find_faults, read_log, story_of
from store_processes import MIB, SOAK, Host, eventually

ROUNDS = int(os.environ.get("NMC_RESTART_ROUNDS", 200 if SOAK else 20))
SEED = int(os.environ.get("NMC_RESTART_SEED", 1))
RESERVATION_LIFETIME_S = 1
DEATH_IS_SEEN_S = 1
PROGRESS_MS = 300
MASTER_FLAGS = ("--log_level=info", "--default_kv_lease_ttl=20",
                f"--put_start_discard_timeout_sec={RESERVATION_LIFETIME_S}")
ILLEGAL_CLIENT, RPC_FAILURES = "-601", {-900, -901}

ROLES = ("master", "owner", "writer", "reader")
OWNER, KEEPER = "owner:1", "keeper:1"
SEGMENTS = {"owner": 48 * MIB, "keeper": 64 * MIB}
NAMES = {"owner": OWNER, "keeper": KEEPER, "writer": "writer:1", "reader": "reader:1"}
KEPT = ("kept/", "owned/")  # nobody removes them, and there is room for all
VALUE_BYTES_MAX = 200_000
WRITING = {"kept/": "puUPgGve", "owned/": "puUPgGve", "gone/": "puUxrgGesv"}
READING = {"kept/": "gGveEs", "owned/": "gGveEs", "gone/": "gGveEs"}
KEYS = {"kept/": 40, "owned/": 40, "gone/": 20}
PLACES = {"kept/": f"prefer={KEEPER}", "owned/": f"prefer={OWNER}", "gone/": ""}

MASTER_FAILPOINTS = ("store.serve", "store.reserve", "store.commit", "net.reply")
CLIENT_FAILPOINTS = ("store.fill", "store.call", "net.send", "net.receive")


@pytest.fixture
def new_host(bin_dir, tmp_path):
    hosts = []

    def new(*flags):
        hosts.append(Host(bin_dir, tmp_path, *MASTER_FLAGS, *flags))
        return hosts[-1]

    yield new
    for host in hosts:
        host.clean_up()


class Matrix:
    """The host, who plays which role on it, and the history so far."""

    def __init__(self, host):
        self.host = host
        self.host.start_master()
        self.clients, self.logs = {}, []
        self.owner_away = []  # (from, until): times when what lies with the owner may be missed
        self.settled = []     # operations of earlier rounds that still matter
        self.work_number = 0
        for role in NAMES:
            self.start_client(role)

    # ---- processes ----

    def process(self, role):
        return self.host.master if role == "master" else self.clients[role]

    def start_client(self, role):
        def join():
            return self.host.try_client(NAMES[role], SEGMENTS.get(role, 0), "--progress-ms", PROGRESS_MS)

        client = self.clients[role] = eventually(join, f"{role} joins")
        operations = READING if role == "reader" else WRITING
        for prefix, letters in operations.items():
            client.say(f"range {prefix} {KEYS[prefix]} {VALUE_BYTES_MAX} {letters} {PLACES[prefix]}")

    def start_work(self, role):
        self.work_number += 1
        client = self.clients[role]
        client.log = self.host.logs / f"work-{self.work_number}"
        self.logs.append((client.log, f"{role} {client.pid}"))
        client.say(f"work {self.work_number} 0 {client.log}")

    def restart(self, role):
        if role == "master":
            self.host.start_master()
            return
        self.start_client(role)
        if role == "owner":
            start, _ = self.owner_away.pop()
            self.owner_away.append((start, time.monotonic_ns()))
        self.start_work(role)

    def kill(self, role):
        if role == "owner":
            self.count_owner_away()
        self.process(role).kill()

    def count_owner_away(self):
        if not self.owner_away or self.owner_away[-1][1] is not None:
            self.owner_away.append((time.monotonic_ns(), None))

    def is_running(self, role):
        return self.process(role).is_alive() and not self.process(role).has_stopped()

    def let_them_work(self, rng):
        """Until every client that can has done some more. Without a master that are reads, and failures."""
        target = {}
        for role, client in self.clients.items():
            if self.is_running(role):
                target[role] = client.log.stat().st_size + rng.randrange(200, 6000)

        def have_worked():
            return all(not self.is_running(role) or self.clients[role].log.stat().st_size >= size
                       or not self.is_running("master") for role, size in target.items())

        eventually(have_worked, "the others work")

    # ---- judging ----

    def is_excused(self, read):
        if not read.key.startswith("owned/"):
            return False
        return any(read.end >= start and (until is None or read.begin <= until) for start, until in self.owner_away)

    def judge(self):
        operations, wrong = list(self.settled), []
        for path, process in self.logs:
            those, faults = read_log(path, process)
            operations += those
            wrong += faults
            path.unlink(missing_ok=True)
        assert not wrong, wrong
        faults = find_faults(operations, KEPT, self.is_excused)
        assert not faults, "\n".join(faults[:20]) + "\n" + self.explain(operations, faults[0])
        self.logs.clear()
        self.settle(operations)
        return operations

    def explain(self, operations, fault):
        key = re.search(r"key='([^']*)'", fault).group(1)
        return f"{story_of(operations, key)}\nowner away: {self.owner_away[-3:]}"

    def settle(self, operations):
        """Of a round's end, when all stand still: who wrote what is there, and what may still happen."""
        last = max((op.begin for op in operations if op.kind == "g"), default=0)
        writes = {(op.key, op.seed): op for op in operations if op.kind in "puPU"}
        current = {op.key: op.seed for op in operations if op.kind == "g" and op.process == "sweep" and op.seed}
        self.settled = [writes[key, seed] for key, seed in current.items()]
        self.settled += [op for op in operations if op.may_happen_until() > last and op not in self.settled
                         and op.kind in "puPUxr"][-200:]

    def check_nothing_is_left(self):
        """No reservation, no pin, no segment and no file beyond those of who lives."""
        master = self.host.master

        def is_tidy():
            metrics = master.metrics()
            return (metrics["nano_mooncake_reservations"], metrics["nano_mooncake_limbo_bytes"],
                    metrics["master_active_clients"]) == (0, 0, len(NAMES))

        eventually(is_tidy, "reservations, pins and clients of the dead are gone")
        assert master.metric("master_evicted_key_count") == 0, "there was to be room for everything"
        assert master.segments() == {KEEPER: "MOUNTED", OWNER: "MOUNTED"}
        # One table of pins is the master's own.
        expected = ["index", "lock", *["pins"] * (len(NAMES) + 1), *["segment"] * 2, "socket"]
        eventually(lambda: self.host.file_names() == expected, f"{self.host.file_names()} are {expected}")

    def sweep(self):
        log = self.host.logs / "sweep"
        for role in NAMES:
            self.clients[role].say(f"sweep {log}")
        self.logs.append((log, "sweep"))


class Round:
    """One order of the roles, and what happens to each."""

    def __init__(self, matrix, seed):
        self.matrix, self.rng = matrix, random.Random(seed)
        self.order = self.rng.sample(ROLES, len(ROLES))
        self.fates = {role: self.choose_fate(role) for role in ROLES}
        self.stopped = []  # (role, what follows)
        self.story = [f"seed {seed}"]

    def choose_fate(self, role):
        """How: kill, or stop and what follows; where: a failpoint of the role, or any moment."""
        how = self.rng.choice(("kill", "stop, continue", "stop, kill"))
        failpoints = {"master": MASTER_FAILPOINTS, "reader": ()}.get(role, CLIENT_FAILPOINTS)
        where = self.rng.choice((None, *failpoints)) if failpoints else None
        return how, where

    def run(self):
        matrix, rng = self.matrix, self.rng
        self.arm_master()
        for role in NAMES:
            matrix.start_work(role)
        matrix.let_them_work(rng)
        for role in self.order:
            self.strike(role)
            matrix.let_them_work(rng)
            if self.stopped and rng.random() < 0.5:
                self.end_stop(*self.stopped.pop(rng.randrange(len(self.stopped))))
                matrix.let_them_work(rng)
        while self.stopped:
            self.end_stop(*self.stopped.pop())
        dead = [role for role in ROLES if not matrix.process(role).is_alive()]
        # A client can only join where there is a master; the others come back in any order.
        rng.shuffle(dead)
        dead.sort(key=lambda role: role != "master")
        for role in dead:
            self.story.append(f"restart {role}")
            matrix.restart(role)
        matrix.let_them_work(rng)
        for role in NAMES:
            matrix.clients[role].say("stop")
        matrix.check_nothing_is_left()
        matrix.sweep()
        return matrix.judge()

    def arm_master(self):
        """A master has its failpoint from its start, so one follows another here, with clients that live."""
        how, where = self.fates["master"]
        if where is None:
            return
        action = "exit" if how == "kill" else "stop"
        assert self.matrix.host.master.end() == 0
        self.matrix.host.start_master(f"{where}={action}@{self.rng.randrange(20, 300)}")

    def strike(self, role):
        how, where = self.fates[role]
        self.story.append(f"{role}: {how} at {where or 'any moment'}")
        process = self.matrix.process(role)
        if where is not None:
            self.strike_at_failpoint(role, process, how, where)
        elif how == "kill":
            self.matrix.kill(role)
        else:
            process.stop()
        if process.is_alive() and how != "kill":
            self.stopped.append((role, how))

    def strike_at_failpoint(self, role, process, how, where):
        """Waits for the process to get there. It can't where the others it needs are gone: then any moment will do."""
        if role != "master" and self.matrix.is_running(role):
            if role == "owner" and how == "kill":
                self.matrix.count_owner_away()
            process.say(f"arm {where} {'exit' if how == 'kill' else 'stop'} {self.rng.randrange(3)}")
        until = time.monotonic() + 2
        eventually(lambda: not self.matrix.is_running(role) or self.is_stuck(role) or time.monotonic() > until,
                   f"{role} gets to {where}")
        if self.matrix.is_running(role):
            self.story.append("(which it didn't reach: killed)")
            self.matrix.kill(role)  # it mustn't get there later

    def is_stuck(self, role):
        """Whether nobody is there who would bring it to its failpoint."""
        writers = [name for name in ("owner", "keeper", "writer") if self.matrix.is_running(name)]
        return not writers if role == "master" else not self.matrix.is_running("master")

    def end_stop(self, role, how):
        process = self.matrix.process(role)
        if how == "stop, kill":
            self.story.append(f"kill {role}")
            self.matrix.kill(role)
            return
        if role == "master":
            self.wait_for_a_timeout()
        elif role == "writer" and self.fates[role][1] == "store.fill":
            until = time.monotonic() + 1.1 * RESERVATION_LIFETIME_S
            eventually(lambda: time.monotonic() > until, "the reservation's time is up")
        self.story.append(f"continue {role}")
        process.go_on()
        eventually(lambda: not process.has_stopped(), f"{role} goes on")

    def wait_for_a_timeout(self):
        """A client has given the stopped master up."""
        keeper = self.matrix.clients["keeper"]
        start = keeper.log.stat().st_size

        def gave_up():
            with open(keeper.log) as log:
                log.seek(max(0, start - 200))
                answers = [line.split()[2:] for line in log.read().splitlines() if line.startswith("e ")]
            return any(int(outcome) in RPC_FAILURES for answer in answers for outcome in answer)

        eventually(gave_up, "a client gives the master up")


def test_any_of_them_may_die_or_stand_still_in_any_order(new_host):
    matrix = Matrix(new_host())
    judged = 0
    for number in range(ROUNDS):
        current = Round(matrix, SEED + number)
        try:
            judged += len(current.run())
        except BaseException:
            print("the round:", "; ".join(current.story), "\nits masters:", matrix.host.master_log())
            raise
    assert judged > 100 * ROUNDS, "hardly anything was done"
    matrix.host.end()


@pytest.mark.parametrize("before, option, after", [
    (None, "", "-704"),             # nothing there: refused, and nothing came of it
    ("put late 2 200000", "replace", "0 2"),  # not what the late one wanted there
])
def test_a_put_that_stood_still_beyond_its_time_is_refused(new_host, before, option, after):
    host = new_host()
    host.start_master()
    owner, writer = host.start_client("owner:1", 16 * MIB), host.start_client("writer:1")
    writer.say("arm store.fill stop")
    writer.send(f"put late 1 300000 {option}")
    eventually(writer.has_stopped, "the writer stands still between reserving and committing")
    assert host.master.metric("nano_mooncake_reservations") == 1
    assert owner.say("exists late") == "0"
    if before is not None:
        assert owner.say(before) == "0", "the key isn't held by a put that isn't finished"
    until = time.monotonic() + 1.1 * RESERVATION_LIFETIME_S
    eventually(lambda: time.monotonic() > until, "the reservation's time is up")
    writer.go_on()
    assert writer.answer() == ILLEGAL_CLIENT
    assert owner.say("get late") == writer.say("get late") == after
    assert writer.say("put late 3 250000 replace") == "0"
    assert owner.say("get late") == "0 3"
    assert host.master.metric("nano_mooncake_reservations") == 0
    host.end()


def test_a_put_that_was_late_for_a_taken_key_is_as_any_put_of_it(new_host):
    host = new_host()
    host.start_master()
    owner, writer = host.start_client("owner:1", 16 * MIB), host.start_client("writer:1")
    writer.say("arm store.fill stop")
    writer.send("put late 1 300000")
    eventually(writer.has_stopped, "the writer stands still between reserving and committing")
    assert owner.say("put late 2 200000") == "0"
    writer.go_on()
    assert writer.answer() == "0"
    assert owner.say("get late") == writer.say("get late") == "0 2"
    host.end()


@pytest.mark.parametrize("failpoint", CLIENT_FAILPOINTS)
def test_what_a_dead_writer_reserved_is_room_again(new_host, failpoint):
    """Fifty puts of 4 MiB, each killed on its way: half a store of 16 MiB would be gone with the second."""
    host = new_host()
    host.start_master()
    owner = host.start_client("owner:1", 16 * MIB)
    for attempt in range(50 if SOAK else 8):
        writer = host.start_client("writer:1")
        passes = attempt % 2 if failpoint in ("store.call", "net.send") else 0  # with 1 it dies before the commit
        writer.say(f"arm {failpoint} exit {passes}")
        writer.send(f"put half {attempt + 1} {4 * MIB}")
        assert writer.answer() is None
        eventually(lambda: host.master.metric("nano_mooncake_reservations") == 0, "the reservation is gone")
        assert owner.say("exists half") == "0"
        assert owner.say("get half") == "-704"
        assert owner.say(f"put half {100 + attempt} {12 * MIB}") == "0"
        assert owner.say("get half") == f"0 {100 + attempt}"
        assert owner.say("remove half force") == "0"
    host.end()


def killed_amid_a_put(host, other, key, seed, size, over_tcp):
    """A writer is killed at a moment when the master has reserved the room. False: it had committed by then."""
    if over_tcp:
        writer = host.start_client("writer:1", 0, "--tcp", server=host.master.address)
    else:
        writer = host.start_client("writer:1")
    writer.send(f"put {key} {seed} {size}")
    reserved = "nano_mooncake_reservations"
    eventually(lambda: host.master.metric(reserved) == 1 or not writer.lines.empty(), "the put has begun")
    writer.kill()
    eventually(lambda: host.master.metric(reserved) == 0, "what it had reserved is free", DEATH_IS_SEEN_S)
    if other.say(f"exists {key}") == "0":
        return True
    assert other.say(f"get {key}") == f"0 {seed}", "committed, then whole"
    assert other.say(f"remove {key} force") == "0"
    return False


@pytest.mark.parametrize("over_tcp", [False, True], ids=["shared", "tcp"])
def test_a_writer_killed_amid_a_large_put_leaves_neither_object_nor_hole(new_host, over_tcp):
    host = new_host()
    host.start_master()
    rounds, size = 50 if SOAK else 3, 32 * MIB
    host.start_client("owner:1", 48 * MIB)  # two such objects don't fit
    other = host.start_client("other:1")
    used = host.master.metric("master_allocated_bytes")
    amid = tries = 0
    while amid < rounds:
        tries += 1
        assert tries <= 10 * rounds, f"only {amid} were caught amid their put"
        if not killed_amid_a_put(host, other, "k", tries, size, over_tcp):
            continue
        amid += 1
        assert other.say("get k") == "-704"
        assert other.say(f"put k {1000 + tries} {size}") == "0"
        assert other.say("get k") == f"0 {1000 + tries}"
        assert other.say("remove k force") == "0"
        assert host.master.metric("master_allocated_bytes") == used
    host.end()


def test_what_is_superseded_while_its_owner_is_away_stays_superseded(new_host):
    host = new_host()
    host.start_master()
    keeper, owner = host.start_client("keeper:1", 32 * MIB), host.start_client("owner:1", 16 * MIB)
    for key in ("kept", "upserted", "upserted-and-removed"):
        assert owner.say(f"put {key} 1 100000 prefer=owner:1") == "0"
    owner.kill()
    eventually(lambda: keeper.say("exists kept") == "0", "the owner's death is noticed")
    assert keeper.say("put upserted 2 100000 replace") == "0"
    assert keeper.say("put upserted-and-removed 2 100000 replace") == "0"
    assert keeper.say("remove upserted-and-removed force") == "0"
    owner = host.start_client("owner:1", 16 * MIB)
    assert keeper.say("get kept") == "0 1"
    assert keeper.say("get upserted") == "0 2"
    assert keeper.say("get upserted-and-removed") == "-704"
    host.end()
