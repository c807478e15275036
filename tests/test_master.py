"""mooncake_master as operators, dashboards and clients meet it: the real process, its flags, its HTTP, its end."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import pytest

from store_processes import eventually

PROGRAM = "mooncake_master"
TIMEOUT_S = 60
MIB = 1 << 20

# The flags of Mooncake's own master with their defaults, but for addresses and ports.
REFERENCE_DEFAULTS = """
    allocation_strategy=random allow_evict_soft_pinned_objects=true batch_oplog_retry_timeout_sec=180 client_ttl=10
    cluster_id=mooncake_cluster config_path= cxl_path=/dev/dax0.0 cxl_size=8589934592 default_kv_lease_ttl=10000
    default_kv_soft_pin_ttl=1800000 dynamic_replication_admission_qps_threshold=0.80000000000000004
    dynamic_replication_heat_window_seconds=10 dynamic_replication_max_memory_replicas=2 dynamic_replication_mode=off
    enable_cxl=false enable_disk_eviction=true enable_ha=false enable_http_metadata_server=false
    enable_kv_events=false enable_metadata_cleanup_on_timeout=false enable_metric_reporting=true
    enable_multi_tenants=false enable_offload=false enable_oplog=false enable_snapshot=false
    enable_snapshot_restore=false etcd_endpoints= eviction_high_watermark_ratio=0.90000000000000002
    eviction_ratio=0.050000000000000003 global_file_segment_size=9223372036854775807 ha_backend_connstring=
    ha_backend_type=etcd kv_events_additional_salt= kv_events_backend_id= kv_events_bind_endpoint=
    kv_events_block_size=0 kv_events_dp_rank=0 kv_events_emit_legacy_compat=true kv_events_emit_object_key=true
    kv_events_lora_name= kv_events_model_name= kv_events_queue_capacity=65536 kv_events_tenant_id=default
    max_kv_soft_pin_ttl=86400000 max_retry_attempts=10 max_threads=16 max_total_finished_tasks=10000
    max_total_pending_tasks=10000 max_total_processing_tasks=10000 memory_allocator=offset
    mmap_arena_pool_size=8589934592 nof_eviction_high_watermark_ratio=0.90000000000000002
    nof_eviction_ratio=0.050000000000000003 nof_heartbeat_failures_threshold=3 nof_heartbeat_interval_sec=10
    nof_heartbeat_probe_timeout_ms=1000 offload_cap_ratio=0.5 offload_force_evict=false offload_on_evict=false
    offloading_queue_limit=50000 oplog_batch_max_entries=1024 oplog_poll_interval_ms=1000
    pending_task_timeout_sec=300 pod_name= pod_namespace= processing_task_timeout_sec=300
    promotion_admission_threshold=2 promotion_max_per_heartbeat=1 promotion_on_hit=false promotion_queue_limit=50000
    put_start_discard_timeout_sec=30 put_start_release_timeout_sec=600 quota_bytes=0 root_fs_dir=
    rpc_conn_timeout_seconds=0 rpc_enable_tcp_no_delay=true rpc_interface= rpc_thread_num=0 snapshot_backup_dir=
    snapshot_catalog_backend_connstring= snapshot_catalog_backend_type= snapshot_catalog_store_connstring=
    snapshot_catalog_store_type= snapshot_child_timeout_seconds=300 snapshot_interval_seconds=600
    snapshot_object_store_type= snapshot_payload_backend_type= snapshot_payload_store_type=
    snapshot_retention_count=2 tenant_quota_connector_type=file tenant_quota_connector_uri=
    use_mmap_arena_allocator=false logtostderr=false minloglevel=0 stderrthreshold=2 v=0 log_dir=
""".split()


class Admin:
    """The HTTP of a running master."""

    def __init__(self, server):
        self.url = urllib.parse.urlsplit(re.search(r"metrics at (\S+)/metrics", "".join(server.log)).group(1))

    def request(self, method, target, headers=None):
        """Status, text and headers."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, target, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())

    def get(self, target):
        status, text, _ = self.request("GET", target)
        assert status == 200, text
        return text

    def json(self, target):
        return json.loads(self.get(target))

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE).group(1))


class StoreProcess:
    """A client with a segment of its own in a process of its own, told what to do line by line."""

    CODE = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
print(store.setup("localhost", "P2PHANDSHAKE", int(sys.argv[2]), 16 << 20, "tcp", "", sys.argv[1]), flush=True)
for line in sys.stdin:
    verb, key, value = (line.rstrip("\\n").split(" ") + ["", ""])[:3]
    if verb == "put":
        print(store.put(key, value.encode()), flush=True)
    elif verb == "get":
        print(store.get(key).decode(), flush=True)
    elif verb == "name":
        print(store.get_hostname(), flush=True)
    elif verb == "close":
        print(store.close(), flush=True)
"""

    def __init__(self, package_path, address, segment=16 * MIB, environment=None):
        self.process = subprocess.Popen([sys.executable, "-c", self.CODE, address, str(segment)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, "PYTHONPATH": str(package_path), **(environment or {})})
        self.setup_code = int(self.process.stdout.readline())

    def say(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def start_master(start_program):
    """Starts a master on free ports, unless the flags say otherwise."""

    def start(*flags, environment=None):
        ports = () if any("metrics" in flag and "port" in flag for flag in map(str, flags)) else ("--metrics_port=0",)
        return start_program(PROGRAM, *ports, *flags, environment=environment)

    return start


@pytest.fixture(scope="module")
def shared(start_program):
    server = start_program(PROGRAM, "--metrics_port=0")
    yield Admin(server)
    server.terminate()
    assert server.wait() == 0, "".join(server.log)


@pytest.fixture
def start_store(build_dir):
    """Starts clients; those that still run after the test are killed."""
    package_path = build_dir / "python"
    if not any((package_path / "mooncake").glob("_store.*.so")):
        pytest.skip("the Python package isn't built here")
    started = []

    def start(address, **more):
        started.append(StoreProcess(package_path, address, **more))
        return started[-1]

    yield start
    for store in started:
        store.kill()


@pytest.fixture
def folder(tmp_path):
    """For --store_dir: short, since the path of a socket is."""
    path = pathlib.Path(f"/tmp/nmc-{os.getpid()}-{tmp_path.name[:8]}")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(bin_dir, *arguments, program=PROGRAM, env=None):
    return subprocess.run([bin_dir / program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=TIMEOUT_S, env={**os.environ, **(env or {})})


def refused(bin_dir, *arguments, code=2, env=None):
    """The one line of a master that doesn't start."""
    done = run(bin_dir, *arguments, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    return done.stderr


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def folder_of(server):
    return pathlib.Path(re.search(r"shared files in ([^;]+);", "".join(server.log)).group(1))


def port_of(server):
    return int(server.url.rpartition(":")[2])


# ---- Flags --------------------------------------------------------------------------------------------------------


def test_it_is_the_command_under_another_name(bin_dir):
    for flag in ("--help", "--version"):
        link, command = run(bin_dir, flag), run(bin_dir, "master", flag, program="nano-mooncake")
        assert (link.returncode, link.stdout) == (0, command.stdout)
    assert "  master " in run(bin_dir, "--help", program="nano-mooncake").stdout


def test_help_tells_flags_defaults_and_where_it_differs_from_mooncakes(bin_dir):
    text = " ".join(run(bin_dir, "--help").stdout.split())
    for part in ("--rpc-address ADDRESS", "Default: 127.0.0.1.", "0.0.0.0", "--rpc-port N", "0 picks a free one",
                 "Default: 50051.", "Default: 9003.", "--store-dir DIR", "without effect", "--eviction-ratio",
                 "Exit codes:", "Example:"):
        assert part in text


@pytest.mark.parametrize("flags", [
    ("--rpc_port={port}", "--metrics_port={metrics}", "--default_kv_lease_ttl=500"),
    ("--rpc-port", "{port}", "--metrics-port", "{metrics}", "--default-kv-lease-ttl", "500ms"),
    ("-rpc_port={port}", "-metrics_port", "{metrics}", "-default_kv_lease_ttl=1h",
     "--noallow_evict_soft_pinned_objects"),
    ("--rpc_port={port}", "--metrics_port={metrics}", "--enable_http_metadata_server=false", "--insecure=0",
     "--default_kv_soft_pin_ttl=5s", "--max_kv_soft_pin_ttl=1h", "--put_start_discard_timeout_sec=7"),
], ids=["underscores", "dashes", "one dash", "switches"])
def test_flags_take_every_spelling(start_master, flags):
    port, metrics = free_port(), free_port()
    server = start_master(*(flag.format(port=port, metrics=metrics) for flag in flags))
    assert server.url == f"127.0.0.1:{port}"
    assert Admin(server).url.port == metrics
    assert not any("warning" in line for line in server.log)


def test_port_is_an_older_name_of_rpc_port(bin_dir):
    port, other = free_port(), free_port()
    for flags, expected in ((("--port", port), port), (("--port", other, "--rpc_port", port), port)):
        server = subprocess.Popen([bin_dir / PROGRAM, "--metrics_port=0", "--quiet", *map(str, flags)],
                                  stderr=subprocess.PIPE, text=True)
        with server:
            assert server.stderr.readline() == f"ready 127.0.0.1:{expected}\n"
            server.terminate()
            assert server.wait(TIMEOUT_S) == 0


def test_mooncakes_defaults_are_taken_without_a_word(start_master):
    server = start_master(*(f"--{flag}" for flag in REFERENCE_DEFAULTS))
    assert [line for line in server.log if "warning" in line] == []


@pytest.mark.parametrize("flag", ["--enable_ha=true", "--eviction_ratio=0.2", "--client_ttl=30", "-v=1",
                                  "--etcd_endpoints=127.0.0.1:2379", "--noenable_disk_eviction",
                                  "--root_fs_dir=/nowhere"])
def test_a_flag_without_effect_is_one_warning(start_master, flag):
    warnings = [line for line in start_master(flag).log if "warning" in line]
    name = flag.lstrip("-").removeprefix("no").partition("=")[0].replace("_", "-")
    assert len(warnings) == 1 and f"--{name}" in warnings[0] and "has no effect here: " in warnings[0]


@pytest.mark.parametrize("flags, message", [
    (("--rpc_prot=1",), "--rpc_prot: unknown flag, did you mean --rpc-port?"),
    (("--rpc_port=65536",), "--rpc-port: \"65536\": expected a whole number from 0 to 65535"),
    (("--rpc_port=http",), "expected a whole number"),
    (("--rpc_port",), "expected a value after the flag"),
    (("--rpc_port=1", "--rpc-port=2"), "given 2 times"),
    (("--default_kv_lease_ttl=5d",), "expected milliseconds"),
    (("--default_kv_lease_ttl=-1",), "expected milliseconds"),
    (("--default_kv_soft_pin_ttl=2h", "--max_kv_soft_pin_ttl=1h"),
     "--default-kv-soft-pin-ttl: 7200000 ms, expected at most the 3600000 ms of --max-kv-soft-pin-ttl"),
    (("--enable_http_metadata_server=perhaps",), "--enable-http-metadata-server"),
    (("--eviction_ratio=much",), "--eviction-ratio: \"much\": expected a number"),
    (("--max_retry_attempts=-1",), "--max-retry-attempts: \"-1\""),
    (("--rpc_thread_num=2147483648",), "--rpc-thread-num"),
    (("--enable_ha=perhaps",), "--enable-ha"),
    (("--store_dir=",), "--store-dir"),
    (("master",), "unexpected \"master\", expected flags only"),
    (("--rpc_address=not a host", "--rpc_port=0", "--insecure"), "not a host"),
    (("--token_file=/nowhere/token",), "/nowhere/token"),
])
def test_a_wrong_flag_is_one_line_and_exit_2(bin_dir, flags, message):
    assert message in refused(bin_dir, *flags)


# ---- Where it listens ---------------------------------------------------------------------------------------------


def test_everything_listens_when_it_says_ready(start_master):
    server = start_master("--enable_http_metadata_server=true", "--http_metadata_server_port=0")
    metadata = re.search(r"metadata at (\S+)/metadata", "".join(server.log)).group(1)
    for address in (server.url, f"{Admin(server).url.netloc}", metadata.removeprefix("http://")):
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S).close()
    assert (folder_of(server) / "socket").is_socket()


@pytest.mark.parametrize("flags", [("--rpc_address=0.0.0.0",), ("--metrics_host=0.0.0.0",)])
def test_beyond_loopback_it_wants_a_token_or_a_word(bin_dir, start_master, flags, tmp_path):
    line = refused(bin_dir, "--rpc_port=0", "--metrics_port=0", *flags)
    assert "0.0.0.0" in line and "NANO_MOONCAKE_TOKEN" in line and "--insecure" in line
    (tmp_path / "token").write_text("secret\n")
    for more, environment in ((("--insecure",), {}), ((), {"NANO_MOONCAKE_TOKEN": "secret"}),
                              ((), {"NANO_MOONCAKE_TOKEN_FILE": str(tmp_path / "token")})):
        assert port_of(start_master(*flags, *more, environment=environment)) > 0


def test_an_empty_token_file_is_refused(bin_dir, tmp_path):
    (tmp_path / "token").write_text(" \n")
    line = refused(bin_dir, "--rpc_port=0", env={"NANO_MOONCAKE_TOKEN_FILE": str(tmp_path / "token")})
    assert "expected a token" in line


def test_with_a_token_http_asks_for_it(start_master):
    admin = Admin(start_master(environment={"NANO_MOONCAKE_TOKEN": "secret"}))
    assert admin.request("GET", "/health")[0] == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
        status, _, answered = admin.request("GET", "/metrics", headers)
        assert (status, answered["WWW-Authenticate"]) == (401, "Bearer")
    assert admin.request("GET", "/metrics", {"Authorization": "Bearer secret"})[0] == 200


@pytest.mark.parametrize("flag", ["--rpc_port", "--metrics_port", "--http_metadata_server_port"])
def test_a_port_in_use_is_one_line_and_exit_3(bin_dir, flag):
    ports = ("--rpc_port", "--metrics_port", "--http_metadata_server_port")
    others = [f"{other}=0" for other in ports if other != flag]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(bin_dir, "--enable_http_metadata_server=true", *others, f"{flag}={port}", code=3)
    assert str(port) in line and "in use" in line
    assert not pathlib.Path(f"/dev/shm/nano-mooncake-{os.geteuid()}/{port}").exists()


def test_a_second_master_on_the_port_is_refused_by_name(bin_dir, start_master):
    port = free_port()
    start_master(f"--rpc_port={port}")
    line = refused(bin_dir, f"--rpc_port={port}", "--metrics_port=0", code=3)
    assert f"127.0.0.1:{port}" in line and "living master" in line


def test_a_second_master_in_the_folder_is_refused_by_name(bin_dir, start_master, folder):
    first = start_master(f"--store_dir={folder}")
    line = refused(bin_dir, f"--store_dir={folder}", "--rpc_port=0", "--metrics_port=0", code=3)
    assert str(folder) in line and "living master" in line
    assert Admin(first).get("/role") == "leader"


# ---- Its end, and the next one ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_second_and_leaves_nothing(start_master, number):
    port = free_port()
    server = start_master(f"--rpc_port={port}", "--enable_http_metadata_server=true", "--http_metadata_server_port=0")
    files = folder_of(server)
    assert files == pathlib.Path(f"/dev/shm/nano-mooncake-{os.geteuid()}/{port}") and files.is_dir()
    admin = Admin(server)
    idle = [socket.create_connection(("127.0.0.1", open_port)) for open_port in (admin.url.port, port)]
    began = time.monotonic()
    server.process.send_signal(number)
    assert server.wait() == 0
    assert time.monotonic() - began < 1
    assert not files.exists()
    for connection in idle:
        connection.close()


def test_a_free_port_has_a_folder_that_ends_with_it(start_master, start_store):
    server = start_master()
    files = folder_of(server)
    store = start_store(server.url)
    assert store.setup_code == 0 and store.say("put", "key", "value") == "0"
    server.terminate()
    assert server.wait() == 0
    assert not files.exists()


def test_what_a_killed_master_left_on_a_free_port_goes_with_the_next_start(start_master):
    server = start_master()
    files = folder_of(server)
    server.kill()
    assert files.exists()
    start_master()
    assert files.exists(), "a lock this young may belong to a master that starts"
    an_hour_ago = time.time() - 3600
    os.utime(files / "lock", (an_hour_ago, an_hour_ago))
    living = start_master()
    assert not files.exists()
    os.utime(folder_of(living) / "lock", (an_hour_ago, an_hour_ago))
    start_master()
    assert folder_of(living).exists()


def test_the_folder_of_a_dead_master_stays_as_long_as_it_holds_objects(start_master, start_store):
    server, empty = start_master(f"--rpc_port={free_port()}"), start_master(f"--rpc_port={free_port()}")
    store = start_store(server.url)
    assert store.say("put", "key", "value") == "0"
    folders = [folder_of(one) for one in (server, empty)]
    an_hour_ago = time.time() - 3600
    for one, files in zip((server, empty), folders):
        one.kill()
        os.utime(files / "lock", (an_hour_ago, an_hour_ago))
    start_master()
    assert [files.exists() for files in folders] == [True, False]
    assert store.say("get", "key") == "value"
    following = start_master(f"--rpc_port={port_of(server)}")
    other = start_store(following.url)
    assert other.say("get", "key") == "value"
    for one in (other, store):
        assert one.say("close") == "0"
    following.terminate()
    assert following.wait() == 0
    assert not folders[0].exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_master_of_a_port_goes_on_with_its_objects(start_master, start_store, number):
    port = free_port()
    server = start_master(f"--rpc_port={port}")
    files = folder_of(server)
    store = start_store(server.url)
    assert store.say("put", "key", "value") == "0"
    server.process.send_signal(number)
    server.wait()
    assert any(path.name.startswith("segment.") for path in files.iterdir())
    assert store.say("get", "key") == "value"

    following = start_master(f"--rpc_port={port}")
    admin = Admin(following)
    assert admin.json("/health")["view_version"] == 2
    assert admin.get("/get_all_keys") == "key\n"
    reader = start_store(following.url)
    assert reader.say("get", "key") == "value"
    reader.say("close")
    store.say("close")
    following.terminate()
    assert following.wait() == 0
    assert not files.exists()


def test_a_folder_given_is_left_empty(start_master, folder):
    server = start_master(f"--store_dir={folder}")
    assert folder_of(server) == folder and (folder / "lock").exists()
    server.terminate()
    assert server.wait() == 0
    assert not folder.exists() or not any(folder.iterdir())


def test_a_folder_of_others_is_refused(bin_dir, folder):
    folder.mkdir()
    folder.chmod(0o777)
    line = refused(bin_dir, f"--store_dir={folder}", "--rpc_port=0", "--metrics_port=0")
    assert str(folder) in line and "0700" in line


def test_without_a_writable_dev_shm_it_uses_the_temporary_folder(bin_dir, tmp_path):
    read_only = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o ro none /dev/shm && exec \"$0\" \"$@\""]
    if subprocess.run([*read_only, "true"], capture_output=True, timeout=TIMEOUT_S).returncode != 0:
        pytest.skip("mounting needs rights that this user hasn't")
    scratch = pathlib.Path(f"/tmp/nmc-{os.getpid()}-ro")
    scratch.mkdir()
    try:
        server = subprocess.Popen([*read_only, bin_dir / PROGRAM, "--rpc_port=0", "--metrics_port=0"], text=True,
                                  stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)})
        with server:
            lines = [server.stderr.readline()]
            while lines[-1] and not lines[-1].startswith("ready "):
                lines.append(server.stderr.readline())
            server.terminate()
            assert server.wait(TIMEOUT_S) == 0
        assert "warning" in lines[0] and "/dev/shm" in lines[0] and str(scratch) in lines[0]
        assert f"shared files in {scratch}/" in lines[1]
        assert not any(scratch.iterdir())
    finally:
        shutil.rmtree(scratch)


# ---- Metrics and administration -----------------------------------------------------------------------------------


def test_a_master_without_clients_answers_every_route(shared):
    assert shared.json("/health").items() >= {"status": "ok", "role": "leader", "ha_state": "serving",
                                              "service_ready": True}.items()
    assert (shared.get("/role"), shared.get("/ha_status")) == ("leader", "serving")
    assert shared.json("/leader")["present"] is True
    assert shared.json("/kv_events/status")["enabled"] is False
    assert (shared.get("/get_all_keys"), shared.get("/get_all_segments")) == ("", "")
    assert shared.json("/get_segments_detail") == {"total_segments": 0, "segments": []}
    assert shared.json("/batch_query_keys?keys=a") == {
        "success": True, "data": {"a": {"ok": False, "error": "OBJECT_NOT_FOUND"}}}
    assert shared.get("/metrics/summary").startswith("role=leader, state=serving, ")
    status, text, _ = shared.request("POST", "/api/v1/remove_all")
    assert (status, json.loads(text)) == (200, {"success": True, "removed_count": 0})


@pytest.mark.parametrize("method, target, status, code", [
    ("GET", "/query_key?key=nowhere", 404, -704),
    ("GET", "/query_key", 400, -600),
    ("GET", "/query_key?key=%g0", 400, -600),
    ("GET", "/batch_query_keys", 400, None),
    ("GET", "/batch_query_keys?keys=a,%", 400, None),
    ("GET", "/query_segment?segment=nowhere", 404, -101),
    ("GET", "/query_segment?segment=", 400, -600),
    ("POST", "/api/v1/remove_all?force=perhaps", 400, -600),
    ("POST", "/api/v1/remove_all?tenant_id=a", 501, -1012),
    ("GET", "/api/v1/remove_all", 405, -600),
    ("POST", "/metrics", 405, -600),
    ("DELETE", "/get_all_keys", 405, -600),
    ("POST", "/api/v1/drain_jobs", 501, -1012),
    ("GET", "/api/v1/drain_jobs/query?job_id=1", 501, -1012),
    ("POST", "/api/v1/drain_jobs/cancel", 501, -1012),
    ("GET", "/api/v1/segments/status?segment=a", 501, -1012),
    ("PUT", "/api/v1/tenant_quotas", 501, -1012),
    ("GET", "/tenant_quota_policy", 501, -1012),
    ("GET", "/", 404, -600),
    ("GET", "/query_key/", 404, -600),
])
def test_a_wrong_request_is_a_status_and_a_reason(shared, method, target, status, code):
    answered, text, headers = shared.request(method, target)
    answer = json.loads(text)
    assert (answered, answer["success"], answer.get("error_code")) == (status, False, code)
    assert answer.get("error_message") or answer["error"]
    assert status != 405 or headers["Allow"]


def test_head_has_the_headers_of_get(shared):
    status, text, headers = shared.request("HEAD", "/health")
    assert (status, text) == (200, "") and int(headers["Content-Length"]) > 0


def test_a_key_beyond_the_limit_of_a_request_is_refused(shared):
    assert shared.request("GET", "/query_key?key=" + "k" * (64 << 10))[0] == 431


def test_metrics_are_text_that_prometheus_reads(shared):
    status, text, headers = shared.request("GET", "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4")
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line)
            continue
        name = re.fullmatch(r"([a-z_]+)(\{[a-z]+=\"[^\"]*\"\})? [0-9.e+]+", line).group(1)
        assert name in kinds or re.sub("_(bucket|sum|count)$", "", name) in kinds, line
    for name in ("put_start", "put_end", "put_revoke", "get_replica_list", "exist_key"):
        assert kinds[f"master_batch_{name}_failed_items_total"] == "counter"
    for name in ("remove", "remove_by_regex", "remove_all", "mount_segment", "unmount_segment", "ping"):
        assert kinds[f"master_{name}_requests_total"] == kinds[f"master_{name}_failures_total"] == "counter"
    for name in ("master_allocated_bytes", "master_total_capacity_bytes", "segment_allocated_bytes",
                 "segment_total_capacity_bytes", "master_key_count", "master_soft_pin_key_count",
                 "master_active_clients"):
        assert kinds[name] == "gauge"
    assert kinds["master_value_size_bytes"] == "histogram"


def test_a_store_at_work_shows(start_master, start_store):
    server = start_master()
    admin, store = Admin(server), start_store(server.url)
    name = store.say("name")
    assert store.say("put", "some/key", "value") == "0"
    assert admin.get("/get_all_segments") == f"{name}\n"
    assert admin.get("/get_all_keys") == "some/key\n"
    for key in ("some/key", "some%2Fkey"):
        found = admin.json(f"/query_key?key={key}")
        assert found["success"] and [buffer["size_"] for buffer in found["data"]] == [5]
        assert found["data"][0]["transport_endpoint_"] == name
    assert admin.json("/batch_query_keys?keys=nowhere,some/key")["data"]["some/key"]["ok"] is True
    assert re.fullmatch(rf"{re.escape(name)}\nUsed\(bytes\): \d+\nCapacity\(bytes\): {16 * MIB}\n",
                        admin.get(f"/query_segment?segment={name}"))
    [detail] = admin.json("/get_segments_detail")["segments"]
    assert (detail["segment_name"], detail["status"], detail["size_bytes"]) == (name, "MOUNTED", 16 * MIB)
    assert admin.metric("master_key_count") == admin.metric("master_active_clients") == 1
    assert admin.metric("master_total_capacity_bytes") == 16 * MIB
    assert admin.metric(f'segment_total_capacity_bytes{{segment="{name}"}}') == 16 * MIB
    assert admin.metric("master_put_start_requests_total") == 1
    assert admin.request("POST", "/api/v1/remove_all?force=1", {"Origin": "http://page"})[0] == 403
    status, text, _ = admin.request("POST", "/api/v1/remove_all?force=1")
    assert (status, json.loads(text)["removed_count"]) == (200, 1)
    assert admin.metric("master_key_count") == 0
    store.kill()
    server.terminate()
    assert server.wait() == 0


def test_metadata_is_served_beside_it(start_master):
    server = start_master("--enable_http_metadata_server", "--http_metadata_server_port=0")
    url = urllib.parse.urlsplit(re.search(r"metadata at (\S+)/metadata", "".join(server.log)).group(1))
    for method, body, expected in (("PUT", "{}", "metadata updated"), ("GET", None, "{}"),
                                   ("DELETE", None, "metadata deleted"), ("GET", None, "metadata not found")):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, "/metadata?key=mooncake%2Fram%2Fa", body)
            assert connection.getresponse().read().decode() == expected


def test_with_a_disk_objects_outlive_all_memory(start_master, start_store, tmp_path, folder):
    flags = (f"--store_dir={folder}", f"--disk-dir={tmp_path / 'disk'}", "--disk-bytes=64MiB")
    server = start_master(*flags)
    store = start_store(server.url)
    assert store.say("put", "key", "value") == "0"
    eventually(lambda: Admin(server).metric("nano_mooncake_disk_objects") == 1, "it is on disk")
    server.kill()
    store.kill()
    shutil.rmtree(folder)

    server = start_master(*flags)
    admin, store = Admin(server), start_store(server.url)
    assert store.say("get", "key") == "value"
    assert admin.metric("nano_mooncake_disk_hits_total") == 1
    store.kill()
    server.terminate()
    assert server.wait() == 0
