"""The package as it is laid out and installed: what it exports, links, carries and starts."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import mooncake
import pytest
from conftest import HOST, PACKAGE_PATH, TIMEOUT_S, free_port, run_python
from mooncake import store

# What every Debian has that can build the project: C++ itself, and its libraries for logs, text, hashes.
SYSTEM_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "libcrypto.so.3",
    "libssl.so.3",
    "libspdlog.so.1.10",
    "libfmt.so.9",
    "libxxhash.so.0",
}
# Names that known clients of the package import from mooncake.store.
CLIENT_NAMES = (
    "MooncakeDistributedStore ReplicateConfig ObjectDataType SoftPinAction ReplicaStatus ReplicaDescriptor "
    "BufferHandle BufferPool RegisteredBufferPool BufferLease BufferLeaseView MooncakeHostMemAllocator "
    "bind_to_numa_node TensorParallelism ParallelAxis ReadTarget TENSOR KVCACHE COMPLETE"
).split()


def output_of(*command):
    return subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    ).stdout


@pytest.fixture
def extension(package_dir):
    (path,) = package_dir.glob("_store.*.so")
    return path


def test_names_that_clients_import_are_there():
    assert [name for name in CLIENT_NAMES if not hasattr(store, name)] == []
    assert [name for name in store.__all__ if not hasattr(store, name)] == []


def test_extension_links_nothing_that_clashes_with_other_packages(extension):
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "--dynamic", extension)))
    assert needed <= SYSTEM_LIBRARIES, (
        f"{sorted(needed - SYSTEM_LIBRARIES)} would come into every process with the package"
    )


def test_extension_shows_only_its_entry(extension):
    shown = [line.split()[-1] for line in output_of("nm", "--dynamic", "--defined-only", extension).splitlines()]
    assert shown == ["PyInit__store"]


def test_import_brings_in_nothing_large():
    heavy = run_python(
        "import sys, mooncake.store; print(sorted({'numpy', 'torch', 'asyncio', 'ctypes'} & set(sys.modules)))"
    )
    assert heavy == "[]\n"


def test_type_checkers_find_every_call(package_dir):
    stub = (package_dir / "_store.pyi").read_text()
    assert (package_dir / "py.typed").is_file()
    native = store.MooncakeDistributedStore.__mro__[-2]
    calls = {name for name in vars(native) if not name.startswith("_")}
    assert {name for name in calls if f"    def {name}(self" not in stub} == set()
    compile(stub, "_store.pyi", "exec")
    for signature in (
        "def put(self, key: str, value: Buffer, config: ReplicateConfig | None = None) -> int:",
        "def batch_get_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:",
        "def get_buffer(self, key: str) -> BufferHandle | None:",
    ):
        assert signature in stub


def test_every_call_has_a_docstring():
    public = [
        getattr(store.MooncakeDistributedStore, name) for name in dir(store.MooncakeDistributedStore) if name[0] != "_"
    ]
    assert len(public) > 30 and all(call.__doc__ for call in public)


def test_version_is_the_projects():
    version = re.search(
        r"project\(nano_mooncake VERSION ([0-9.]+)",
        (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text(),
    )[1]
    assert mooncake.__version__ == version


def test_installed_component_is_complete(build_dir, tmp_path):
    """What a wheel is made of beside the Python files."""
    output_of("cmake", "--install", build_dir, "--component", "python", "--prefix", tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {re.sub(r"_store\..*\.so$", "_store.so", name) for name in files} == {
        "mooncake/_store.so",
        "mooncake/_store.pyi",
        "mooncake/bin/nano-mooncake",
    }
    assert os.access(tmp_path / "mooncake/bin/nano-mooncake", os.X_OK)
    assert not any((tmp_path / name).is_symlink() for name in files)


def console_scripts():
    text = (pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    (section,) = re.findall(r"^\[project.scripts\]\n(.*?)^\[", text, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^([\w-]+) = \"([\w.:]+)\"$", section, re.MULTILINE))


def test_every_program_is_a_console_script(package_dir):
    program = (package_dir / "bin" / "nano-mooncake").resolve()
    links = {link.name for link in program.parent.iterdir() if link.is_symlink() and link.resolve() == program}
    assert len(links) > 19 and set(console_scripts()) == links | {program.name}
    assert set(console_scripts().values()) == {"mooncake.cli:main"}


@pytest.mark.parametrize("name", console_scripts())
def test_console_scripts_become_the_program(name, package_dir):
    code = f"import sys; sys.argv[0] = '/usr/bin/{name}'; from mooncake.cli import main; main()"
    text = output_of(sys.executable, "-c", code, "--help")
    assert text == output_of((package_dir / "bin" / "nano-mooncake").resolve().with_name(name), "--help")


@pytest.mark.parametrize("module, program", [("nano_mooncake.demo", ["demo"]), ("nano_mooncake", []),
                                             ("nano_mooncake", ["results"]), ("mooncake.cli", ["master"])])
def test_modules_are_the_program_too(module, program, package_dir):
    words = program if module == "nano_mooncake" else []
    text = output_of(sys.executable, "-m", module, *words, "--help")
    assert text == output_of(package_dir / "bin" / "nano-mooncake", *program, "--help")


def test_console_script_keeps_its_process(package_dir):
    """So a supervisor's signal reaches the master, and its exit code is the master's."""
    command = [
        sys.executable,
        "-c",
        "from mooncake.cli import main; main()",
        f"--rpc_port={free_port()}",
        f"--metrics_port={free_port()}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as master:
        for line in master.stderr:
            if line.startswith("ready"):
                break
        assert os.path.samefile(f"/proc/{master.pid}/exe", package_dir / "bin" / "nano-mooncake")
        master.send_signal(signal.SIGTERM)
        assert master.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("places", ["there", "not there"])
def test_the_program_may_lie_apart_from_the_python(places, tmp_path, package_dir):
    """As an editable install has it; and where it is nowhere, that is said."""
    elsewhere = tmp_path / "mooncake"
    if places == "there":
        (elsewhere / "bin").mkdir(parents=True)
        (elsewhere / "bin" / "nano-mooncake").symlink_to((package_dir / "bin" / "nano-mooncake").resolve())
    code = f"import mooncake.cli as cli, mooncake; mooncake.__path__[:] = ['/nowhere', {str(elsewhere)!r}]; cli.main()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S)
    if places == "there":
        assert done.returncode == 0 and done.stdout.startswith("nano-mooncake "), done
    else:
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "/nowhere/bin/nano-mooncake" in done.stderr


def test_other_distributions_may_add_modules(tmp_path):
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / "other_part.py").write_text("VALUE = 7\n")
    assert (
        run_python(
            f"import sys; sys.path.append({str(tmp_path)!r}); from mooncake.other_part import VALUE; print(VALUE)"
        )
        == "7\n"
    )


def test_example_of_the_readme_runs(master):
    readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", readme, re.MULTILINE)
    (example,) = [textwrap.dedent(block) for block in blocks if "from mooncake.store import" in block]
    assert "127.0.0.1:50051" in example
    assert "'shared_reads': " in run_python(example.replace("127.0.0.1:50051", master.address))
