"""What we care about mechanically, one rule a function. A rule says why in its docstring, and has a planted breach
that it must find, so that none goes blind. Rules stop new trouble: an exception is listed here, with its reason."""

import pathlib
import re
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
LINES_MAX = 700
COLUMNS_MAX = 120
CODE = (".h", ".cc", ".py", ".cmake")


def project_files():
    """Files of the project, tracked or about to be, as (name, text)."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    for name in sorted(set(filter(None, listed))):
        path = REPOSITORY / name
        if name.startswith("fuzz/corpus/") or not path.is_file() or path.is_symlink():
            continue
        try:
            yield name, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data


def is_code(name):
    return name.endswith(CODE) or name.endswith("CMakeLists.txt")


def is_test(name):
    return name.endswith("_test.cc") or (name.startswith("tests/") and is_code(name))


def lines_matching(pattern, text):
    return [f"line {number}: {line.strip()[:80]}" for number, line in enumerate(text.splitlines(), 1)
            if re.search(pattern, line)]


def names_no_machine(name, text):
    """A file that knows where somebody's checkout lies works on that machine only."""
    pattern = "|".join([r"(?<![\w.])/" + r"work\b", r"\.\./" + "shared", r"/ho" + r"me/\w", r"/ro" + "ot/"])
    return lines_matching(pattern, text)


def names_no_tracker(name, text):
    """Numbers of a tracker mean nothing to who reads the source: the reason has to stand there."""
    return lines_matching(r"(?i)\bissue" + r" #?\d|\bO-\d\d\b", text)


def todo_has_a_kind(name, text):
    """perf, cleanup, ... in parentheses: a kind tells whether it can wait, a bare one doesn't."""
    return lines_matching(r"\bTO" + r"DO\b(?!\([a-z]+\): \w)|\bFIX" + r"ME\b|\bXX" + r"X\b", text)


def no_sleep_in_tests(name, text):
    """A sleep as synchronisation is slow on a fast machine and wrong on a slow one. Wait for the event itself."""
    if not is_test(name):
        return []
    calls = r"\b(sleep_" + r"for|sleep_" + r"until|usle" + r"ep|nanosle" + r"ep|time\.sle" + r"ep)\b"
    return lines_matching(calls, text)


def file_is_short(name, text):
    """A file that long serves two masters: split it by what changes together."""
    lines = text.count("\n")
    return [f"{lines} lines, expected at most {LINES_MAX}"] if is_code(name) and lines > LINES_MAX else []


def lines_are_short(name, text):
    """Two files side by side on one screen."""
    if not name.endswith((".h", ".cc", ".py")):
        return []
    return lines_matching(r"^.{%d,}$" % (COLUMNS_MAX + 1), text)


def header_is_guarded(name, text):
    """Headers compile alone and twice. An -inl.h of Highway is meant to be read once a target: it guards itself."""
    if not name.endswith(".h") or name.endswith("-inl.h"):
        return []
    return [] if re.search(r"^#pragma once$", text, re.MULTILINE) else ["no #pragma once"]


def header_opens_with_its_purpose(name, text):
    """A header is a contract: the first thing in it is what it is for."""
    return [] if not name.endswith(".h") or text.startswith("// ") else ["no comment on top that says what it is for"]


def files_are_snake_case(name, text):
    """C++ and Python names look the same."""
    good = re.fullmatch(r"[a-z0-9_]+(-inl)?\.(h|cc|py)", pathlib.PurePath(name).name)
    return [] if not name.endswith((".h", ".cc", ".py")) or good else ["file name is not snake_case"]


def types_are_title_case(name, text):
    """Types and values differ by sight. Trait-like names that a library prescribes are listed."""
    if not name.endswith((".h", ".cc")):
        return []
    found = re.finditer(r"^\s*(?:class|struct|enum class|enum)\s+(?:NMC_\w+(?:\([^)]*\))*\s+|\[\[\w+\]\]\s+)?(\w+)\s*"
                        r"(?:final\s*)?(?::[^:]|\{)", text, re.MULTILINE)
    prescribed = {"formatter", "hash", "reader", "writer"}
    return [f"type {m[1]} is not TitleCase" for m in found
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", m[1]) and m[1] not in prescribed]


def constants_are_k_title(name, text):
    """A constant at namespace or class level reads as one."""
    if not name.endswith((".h", ".cc")):
        return []
    found = re.finditer(r"^(?:  )?(?:inline |static )*constexpr (?:[\w:<>, *]+?) (\w+)(?:\[\w*\])*\s*(?:=|\{)", text,
                        re.MULTILINE)
    return [f"constant {m[1]} is not kTitle" for m in found if not re.fullmatch(r"k[A-Z0-9]\w*", m[1])
            and not m[0].startswith("  constexpr")]


def functions_are_snake_case(name, text):
    """Declared at a line's start or as a member; what libraries call back keeps the library's name."""
    if not name.endswith((".h", ".cc")):
        return []
    pattern = r"^(?:  )?(?:[\w:<>,&*\[\]]+ )+?[&*]?(?:\w+::)*([a-z]+[A-Z]\w*)\([^;]*?\)(?: const)?(?: override)?\s*[;{]"
    return [f"function {m[1]} is not snake_case" for m in re.finditer(pattern, text, re.MULTILINE)
            if not re.match(r"\s*(return|using|case)\b", m[0])]


def macros_carry_our_prefix(name, text):
    """A macro knows no namespace. A library's own switches are defined by its users."""
    if not name.endswith((".h", ".cc")):
        return []
    return [f"macro {macro}" for macro in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)
            if not macro.startswith(("NMC_", "HWY_", "BOOST_"))]


RULES = [
    (names_no_machine, "docs/a.md", "see /" + "work/main"),
    (names_no_machine, "src/base/a.cc", "// as in ../" + "shared/design.md"),
    (names_no_tracker, "src/base/a.cc", "// case O-" + "11"),
    (names_no_tracker, "README.md", "as issue" + " 3 says"),
    (todo_has_a_kind, "src/base/a.cc", "// TO" + "DO: later"),
    (todo_has_a_kind, "src/base/a.cc", "// FIX" + "ME"),
    (no_sleep_in_tests, "src/base/a_test.cc", "std::this_thread::sleep_" + "for(1s);"),
    (no_sleep_in_tests, "tests/test_a.py", "time.sle" + "ep(1)"),
    (file_is_short, "src/base/a.cc", "\n" * (LINES_MAX + 1)),
    (lines_are_short, "src/base/a.cc", "x" * (COLUMNS_MAX + 1)),
    (header_is_guarded, "src/base/a.h", "// A.\nnamespace nmc {}\n"),
    (header_opens_with_its_purpose, "src/base/a.h", "#pragma once\n// A.\n"),
    (files_are_snake_case, "src/base/BigFile.cc", ""),
    (types_are_title_case, "src/base/a.h", "class block_pool final {\n"),
    (types_are_title_case, "src/base/a.h", "enum class color : int {\n"),
    (constants_are_k_title, "src/base/a.cc", "constexpr int limit = 3;\n"),
    (functions_are_snake_case, "src/base/a.h", "int readFile(int x);\n"),
    (macros_carry_our_prefix, "src/base/a.h", "#define CHECK(x) x\n"),
]


@pytest.fixture(scope="module")
def files():
    listed = list(project_files())
    assert len(listed) > 50
    return listed


@pytest.mark.parametrize("rule", sorted({rule for rule, _, _ in RULES}, key=lambda rule: rule.__name__),
                         ids=lambda rule: rule.__name__)
def test_tree_keeps_the_rule(rule, files):
    faults = [f"{name}: {fault}" for name, text in files for fault in rule(name, text)]
    assert faults == [], f"{rule.__name__}: {rule.__doc__}"


@pytest.mark.parametrize("rule, name, text", RULES, ids=lambda value: getattr(value, "__name__", None))
def test_planted_breach_is_found(rule, name, text):
    assert rule(name, text) != []
