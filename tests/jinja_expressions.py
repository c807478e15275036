"""Generated expressions and templates of the Jinja subset, for test_chat_template.py."""

VARIABLES = {
    "n": 7, "m": -3, "z": 0, "f": 2.5, "g": -0.5, "t": True, "no": None,
    "s": "Hello, Wörld!", "e": "", "u": "  Ünï  cödé 😀\n", "w": "ab-ab_AB", "q": "it's \"x\"\\",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "lm": [1, "a", None, 2.0], "le": [],
    "d": {"b": 2, "a": 1, "C": None}, "de": {}, "dn": {"x": {"y": [1, {"z": "deep"}]}, "items": 5},
    "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 3}, {"k": "X", "v": 2}, {"k": "z"}],
}
NUMBERS = ["n", "m", "z", "f", "g", "0", "1", "2", "10", "1.5", "0.1", "1e3", "true", "t", "(l|length)", "(s|length)"]
STRINGS = ["s", "e", "u", "w", "q", "'a'", "'aB c'", "\"x'y\"", "'%'", "'-'", "'\\n'", "'ß'", "'1_0'", "' 12 '",
           "'3.7'"]
LISTS = ["l", "ls", "lm", "le", "rows", "[1, 2]", "['a', 1.0, none]", "(1, 'b')", "()", "range(4)",
         "range(5, 0, -2)", "d.keys()", "d.items()", "d.values()", "[[1], [2]]"]
DICTS = ["d", "de", "dn", "{'a': 1}", "{1: 'x', 'y': [2]}", "rows[0]", "dict(a=1, b='c')"]
OTHERS = ["no", "missing", "none", "d.missing", "l[9]", "true", "false"]
STRING_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last",
                  "reverse", "int", "float", "replace('a', 'b')", "replace('', '-')", "replace('l', 'L', 1)",
                  "indent", "indent(2, true)", "indent('> ', blank=true)", "default('d')", "default('d', true)",
                  "tojson", "trim('aH!')", "join('+')", "int(5)", "int(base=16)", "unique|list", "sort|join",
                  "wordless"]
LIST_FILTERS = ["length", "first", "last", "list", "join", "join(', ')", "sort", "sort(reverse=true)", "unique|list",
                "reverse|list", "map('string')|list", "map('upper')|list", "select|list", "reject('none')|list",
                "tojson", "select('number')|list", "reject('string')|join('/')", "min", "max", "sum", "count",
                "string", "map(attribute='k')|list", "map(attribute='v', default=0)|sum",
                "selectattr('v')|list|length", "selectattr('k', 'equalto', 'x')|list",
                "rejectattr('v', 'gt', 1)|list", "sort(attribute='k')", "sort(case_sensitive=true)",
                "select('in', [1, 'a'])|list", "select('odd')|list", "batchless", "default([])", "sum(start=1)",
                "unique(case_sensitive=true)|join", "max(attribute='v')", "map('tojson')|join", "first|default"]
DICT_FILTERS = ["items|list", "length", "tojson", "tojson(indent=2)", "dictsort", "dictsort(by='value')",
                "dictsort(reverse=true)", "list", "string", "first", "tojson(sort_keys=true)",
                "tojson(separators=(',', ':'))", "last", "join('-')", "sort"]
NUMBER_FILTERS = ["abs", "int", "float", "round", "round(1)", "round(2, 'floor')", "round(method='ceil')", "string",
                  "tojson", "default(1)", "length", "upper"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "true",
         "false", "integer", "float", "odd", "even", "divisibleby(2)", "divisibleby 3", "equalto(1)", "eq 'a'",
         "ne(2)", "gt 1", "lt(3)", "ge 2", "le(0)", "in [1, 2]", "in('abc')", "callable", "lower", "upper",
         "not none", "not in [7]", "== 7", "sameless"]
STRING_METHODS = [".upper()", ".lower()", ".title()", ".capitalize()", ".strip()", ".strip('aH!')", ".lstrip()",
                  ".rstrip('\\n')", ".split()", ".split('-')", ".split('l', 1)", ".rsplit('l', 1)",
                  ".rsplit(none, 1)", ".split(maxsplit=1)", ".startswith('H')", ".endswith(('!', 'b'))",
                  ".replace('l', 'LL')", ".replace('b', '', 1)", ".find('l')", ".find('l', 3)", ".rfind('l')",
                  ".count('l')", ".count('')", ".join(ls)", ".join('xy')", ".splitlines()", ".isupper()",
                  ".islower()", ".isalpha()", ".isspace()", ".removeprefix('He')", ".removesuffix('!')",
                  ".index('o')", ".find('')", ".startswith('l', 2, 4)", ".splitlines(true)", ".count('l', 0, 3)"]
DICT_METHODS = [".get('a')", ".get('q', 5)", ".items()", ".keys()", ".values()", ".a", "['a']", ".missing",
                ".x.y[1].z", "['items']", ".items", ".get('a', default=1)"]
LIST_METHODS = ["[0]", "[-1]", "[1:]", "[::-1]", "[:2]", "[-2:]", "[::2]", "[5:]", ".count(1)", ".index(1)",
                "[true]", "['a']", "[0:1]", ".0", "[3:0:-1]", "[none:2]"]
STRING_SLICES = ["[0]", "[-1]", "[1:]", "[::-1]", "[:5]", "[-3:]", "[2:9:3]", "[99]", "[7:]", "[::-2]"]


def number(rng, depth):
    if depth <= 0 or rng.random() < 0.4:
        return rng.choice(NUMBERS)
    kind = rng.randrange(5)
    if kind == 0:
        return f"({number(rng, depth - 1)} {rng.choice(['+', '-', '*', '/', '//', '%'])} {number(rng, depth - 1)})"
    if kind == 1:
        return f"{rng.choice(['2', '3', '1.5', 'n', '0'])} ** {rng.choice(['0', '1', '3', '2', 'm'])}"
    if kind == 2:
        return f"{rng.choice(['-', '+', ''])}{number(rng, depth - 1)}|{rng.choice(NUMBER_FILTERS)}"
    if kind == 3:
        return f"({anything(rng, depth - 1)}|{rng.choice(['int', 'float', 'length', 'int(3)', 'float(1.0)'])})"
    return f"-{number(rng, depth - 1)}"


def string(rng, depth):
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice(STRINGS)
    kind = rng.randrange(7)
    if kind == 0:
        return f"({string(rng, depth - 1)} + {string(rng, depth - 1)})"
    if kind == 1:
        return f"({anything(rng, depth - 1)} ~ {anything(rng, depth - 1)})"
    if kind == 2:
        return f"({string(rng, depth - 1)}){rng.choice(STRING_METHODS)}"
    if kind == 3:
        return f"({string(rng, depth - 1)} ~ {string(rng, depth - 1)}){rng.choice(STRING_SLICES)}"
    if kind == 4:
        return f"({string(rng, depth - 1)} * {rng.choice(['0', '2', 'm', 't', '3'])})"
    return f"({string(rng, depth - 1)}|{rng.choice(STRING_FILTERS)})"


def sequence(rng, depth):
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice(LISTS)
    kind = rng.randrange(6)
    if kind == 0:
        return f"({sequence(rng, depth - 1)} + {sequence(rng, depth - 1)})"
    if kind == 1:
        return f"{sequence(rng, depth - 1)}{rng.choice(LIST_METHODS)}"
    if kind == 2:
        return f"[{anything(rng, depth - 1)}, {anything(rng, depth - 1)}]"
    if kind == 3:
        return f"({string(rng, depth - 1)}).split({rng.choice(['', repr('a'), repr(' ')])})"
    return f"({sequence(rng, depth - 1)}|{rng.choice(LIST_FILTERS)})"


def mapping(rng, depth):
    if depth <= 0 or rng.random() < 0.4:
        return rng.choice(DICTS)
    kind = rng.randrange(3)
    if kind == 0:
        return f"{mapping(rng, depth - 1)}{rng.choice(DICT_METHODS)}"
    if kind == 1:
        entries = [f"{rng.choice(keys)}: {anything(rng, depth - 1)}" for keys in (STRINGS, NUMBERS)]
        return "{" + ", ".join(entries) + "}"
    return f"({mapping(rng, depth - 1)}|{rng.choice(DICT_FILTERS)})"


def truth(rng, depth):
    kind = rng.randrange(6)
    a, b = anything(rng, depth - 1), anything(rng, depth - 1)
    if kind == 0:
        return f"({a} {rng.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {b})"
    if kind == 1:
        return f"({a} {rng.choice(['and', 'or'])} {b})"
    if kind == 2:
        return f"(not {a})"
    if kind == 3:
        return f"({number(rng, depth - 1)} < {number(rng, depth - 1)} <= {number(rng, depth - 1)})"
    return f"({a} is {rng.choice(TESTS)})"


def anything(rng, depth):
    if depth <= 0:
        return rng.choice(rng.choice([NUMBERS, STRINGS, LISTS, DICTS, OTHERS]))
    kind = rng.randrange(12)
    if kind < 2:
        return number(rng, depth)
    if kind < 5:
        return string(rng, depth)
    if kind < 7:
        return sequence(rng, depth)
    if kind < 8:
        return mapping(rng, depth)
    if kind < 10:
        return truth(rng, depth)
    if kind == 10:
        return f"({anything(rng, depth - 1)} if {truth(rng, depth - 1)} else {anything(rng, depth - 1)})"
    return rng.choice(OTHERS)


def expression(rng):
    return anything(rng, rng.randrange(1, 4))


SPACES = ["", "", " ", "\n", "  ", "\n  ", " \n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003\n"]
WORDS = ["a", "b c", "é", "{", "}", "%", "%}", "{ {", "#", "'", "-", "😀"]


def space(rng):
    return rng.choice(SPACES)


def data(rng):
    return "".join(space(rng) + rng.choice(WORDS) for _ in range(rng.randrange(3))) + space(rng)


def tag(rng, inside):
    begin, end = rng.choice(["", "", "-", "+"]), rng.choice(["", "", "-", "+"])
    return "{%" + begin + rng.choice([" ", "", "\n "]) + inside + rng.choice([" ", "\n"]) + end + "%}"


def output(rng, inside):
    return "{{" + rng.choice(["", "", "-"]) + " " + inside + " " + rng.choice(["", "", "-"]) + "}}"


def body(rng, depth, in_loop=False):
    return "".join(data(rng) + block(rng, depth, in_loop) for _ in range(rng.randrange(1, 4))) + data(rng)


LOOP_MEMBERS = ["index", "last", "first", "revindex0", "length", "previtem", "nextitem", "depth"]
PRINTED = ["n", "x", "s", "l[0]", "i", "ns.v", "d.a", "'lit'", "x ~ i", "e or 'or'", "later", "macro_ is defined"]
TARGETS = ["x", "y", "i", "ns.v", "x, y"]
ASSIGNED = ["1", "n", "(1, 2)", "s", "x ~ 1"]
LOOPS = ["i in l", "i in s[:3]", "i, j in d.items()", "i in range(3) if i != 1", "i in le", "i in missing",
         "i in ls if loop is undefined", "i in [1, 2, 3] if ns.v != i", "x in l", "i in rows"]
CONDITIONS = ["n", "z", "x is defined", "i == 1", "not e", "'a' in d", "ns.v > 1", "loop is defined"]
CALLS = ["{{ macro_(1) }}", "{{ macro_(1, c=n) }}", "{{ macro_(b=1) }}",
         "{% call macro_(5) %}in{{ n }}{% endcall %}", ""]
CALLER = ["", "{% if caller %}{{ caller() }}{% endif %}"]


def comment(rng):
    inside = rng.choice([" note ", "", "{{ x }}", "%}"])
    return "{#" + rng.choice(["", "-"]) + inside + rng.choice(["", "-", "+"]) + "#}"


def raw(rng):
    return tag(rng, "raw").replace("+", "") + rng.choice(["{{ x }}", " {% if %} ", "\n", "{#"]) + tag(rng, "endraw")


def loop(rng, depth, in_loop):
    text = tag(rng, "for " + rng.choice(LOOPS)) + body(rng, depth, True)
    if rng.random() < 0.3:
        text += tag(rng, "else") + body(rng, depth, in_loop)
    return text + tag(rng, "endfor")


def condition(rng, depth, in_loop):
    text = tag(rng, "if " + rng.choice(CONDITIONS)) + body(rng, depth, in_loop)
    for other in ("elif t", "else"):
        if rng.random() < 0.4:
            text += tag(rng, other) + body(rng, depth, in_loop)
    return text + tag(rng, "endif")


def macro(rng, depth):
    text = body(rng, depth) + "{{ a }}{{ b }}{{ c }}" + rng.choice(CALLER)
    return tag(rng, "macro macro_(a, b=2, c=a)") + text + tag(rng, "endmacro") + rng.choice(CALLS)


def block(rng, depth, in_loop):
    kind = rng.randrange(14) if depth > 0 else rng.choice([0, 0, 0, 1, 2, 3])
    inner = depth - 1
    if kind == 1:
        return comment(rng)
    if kind == 2:
        return raw(rng)
    if kind == 3:
        return tag(rng, f"set {rng.choice(TARGETS)} = {rng.choice(ASSIGNED)}")
    if kind in (4, 5):
        return loop(rng, inner, in_loop)
    if kind in (6, 7):
        return condition(rng, inner, in_loop)
    if kind == 8:
        filters = rng.choice(["", " | upper", " | trim | length"])
        return tag(rng, "set x" + filters) + body(rng, inner) + tag(rng, "endset")
    if kind == 9:
        return macro(rng, inner)
    if kind == 10:
        return tag(rng, "with x = 5, y = n") + body(rng, inner, in_loop) + tag(rng, "endwith")
    if kind == 11:
        return tag(rng, "filter upper") + body(rng, inner) + tag(rng, "endfilter")
    if kind == 12 and in_loop:
        leave = rng.choice(["break", "continue"])
        return tag(rng, "if " + rng.choice(["loop.index == 2", "true"])) + tag(rng, leave) + tag(rng, "endif")
    if kind == 13:
        return tag(rng, "generation") + body(rng, inner) + tag(rng, "endgeneration")
    if in_loop and rng.random() < 0.5:
        return output(rng, "loop." + rng.choice(LOOP_MEMBERS))
    return output(rng, rng.choice(PRINTED))


def template(rng):
    end = rng.choice(["{% set later = 1 %}", "", "\n"])
    return "{% set ns = namespace(v=1) %}" + body(rng, rng.randrange(1, 4)) + end
