"""Layers: a folder of src/ may include from the layers that its CMake line lists, and those lie below it."""

import pathlib
import re

import pytest

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
GENERATED = {"nmc_version.inc", "nmc_page.inc", "workload_bundles.inc", "transformers_logits.inc"}
# Highway's foreach_target.h re-includes by quoted name; its headers are quoted as its documentation has them.
LIBRARIES_IN_QUOTES = ("hwy/",)
# The program stands on the top layer and names nothing below but base.
PROGRAM_MAY_INCLUDE = {"cli", "base"}


def read_edges(text):
    """{layer: layers it may include}, in the order CMake declared them."""
    edges = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name.strip():
            edges[name.strip()] = rest.split()
    return edges


def edge_faults(edges):
    """Every listed layer has to be declared above its user in CMake, which also rules cycles out."""
    faults, seen = [], []
    for layer, below in edges.items():
        faults += [f"{layer} lists {other}, which isn't declared before it" for other in below if other not in seen]
        seen.append(layer)
    return faults


def include_faults(src, edges):
    faults = []
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cc")):
        where = path.relative_to(src)
        own = where.parts[0] if len(where.parts) > 1 else None
        if own is not None and own not in edges:
            faults.append(f"{where}: folder {own} is no layer of src/CMakeLists.txt")
            continue
        allowed = PROGRAM_MAY_INCLUDE if own is None else {own, *edges[own]}
        for quoted, angled in INCLUDE.findall(path.read_text()):
            name = quoted or angled
            layer = name.partition("/")[0] if "/" in name else None
            if angled and (layer not in edges or not (src / name).is_file()):
                continue  # a library's header
            if name in GENERATED or name.startswith(LIBRARIES_IN_QUOTES):
                continue
            if layer not in edges:
                faults.append(f'{where}: "{name}" should start with a layer, as in "base/result.h"')
            elif layer not in allowed:
                faults.append(f"{where}: includes {name}, but {own or 'the program'} may include only "
                              f"{', '.join(sorted(allowed))}")
    return faults


@pytest.fixture
def edges(build_dir):
    return read_edges((build_dir / "layer_edges.txt").read_text())


def test_edges_point_down(edges):
    assert len(edges) >= 10 and "base" in edges
    assert edge_faults(edges) == []


def test_includes_follow_the_edges(edges):
    assert include_faults(SRC, edges) == []


def test_every_layer_folder_is_declared(edges):
    assert {p.parent.relative_to(SRC).parts[0] for p in SRC.glob("*/**/*.*")} <= set(edges)


PLANTED_EDGES = "base:\nkv: base\nstore: base kv\ncli: base kv store\n"


@pytest.mark.parametrize(
    "file, line, expected",
    [
        ("kv/a.h", '#include "store/index.h"', "kv/a.h: includes store/index.h"),
        ("kv/a.cc", "#include <store/index.h>", "kv/a.cc: includes store/index.h"),
        ("base/deep/a.cc", ' #  include "kv/layout.h"', "base/deep/a.cc: includes kv/layout.h"),
        ("kv/a_test.cc", '#include "cli/command.h"', "kv/a_test.cc: includes cli/command.h"),
        ("kv/a.h", '#include "layout.h"', 'kv/a.h: "layout.h" should start with a layer'),
        ("kv/a.h", '#include "../store/index.h"', 'kv/a.h: "../store/index.h" should start with a layer'),
        ("extra/a.h", '#include "base/result.h"', "extra/a.h: folder extra is no layer"),
        ("main.cc", '#include "store/index.h"', "main.cc: includes store/index.h"),
    ],
)
def test_planted_include_is_found(tmp_path, file, line, expected):
    for name in ("store/index.h", "kv/layout.h", "cli/command.h", "base/result.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#pragma once\n")
    edges = read_edges(PLANTED_EDGES)
    assert include_faults(tmp_path, edges) == []
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#pragma once\n#include <vector>\n{line}\n")
    faults = include_faults(tmp_path, edges)
    assert len(faults) == 1 and faults[0].startswith(expected)


@pytest.mark.parametrize("text", ["base: kv\nkv: base\n", "base:\nkv: store\nstore: base kv\n", "base: base\n"])
def test_planted_cycle_is_found(text):
    assert edge_faults(read_edges(text)) != []
