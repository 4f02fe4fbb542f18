"""The rules of the tree: who may include whom, what is named where, and the hard sizes.

Each rule takes a Tree (path -> text) and yields Findings. Nothing here reads the disk, so that the
test can plant violations.
"""

import ast
import collections
import re

import source

Finding = collections.namedtuple("Finding", "path line rule message")

TOP_LEVEL = set("CMakeLists.txt CMakePresets.json README.md CHANGELOG.md quickstart check".split())
PAGES = ("docs", "examples")  # For users: no code that anything is built of.
FOLDERS = ("proto", "server", "worker", "kernels", "client", "deploy", "tests")

CPP = (".h", ".cc", ".cu", ".cuh")
CODE = CPP + (".py", ".proto", ".sh", ".cmake", "CMakeLists.txt", "quickstart", "check")
MAX_FILE_LINES = 500
MAX_HEADER_LINES = 150  # And the README's, which is read in one go.
MAX_FUNCTION_LINES = 70
MAX_KERNEL_LINES = 120
MAX_MAIN_LINES = 25
MAX_PARAMETERS = 5
MAX_COLUMNS = 100
UNWRAPPABLE = re.compile(r"^[| *]")  # In Markdown: rows of tables, and what a program printed.

STATUS_MACROS = "proto/snug/status_macros.h"
# Who may include whom: folder -> beginnings of project headers. The longest folder that fits
# counts. "snug/v1/" is what protoc makes of the schema.
MAY_INCLUDE = {
    "proto": ("proto/", "snug/v1/"),
    "kernels": ("kernels/",),
    "worker": ("worker/", "kernels/", STATUS_MACROS),
    "worker/program": ("worker/program/", "kernels/", STATUS_MACROS),  # Sizes of workspaces.
    "worker/link": ("worker/", STATUS_MACROS, "proto/", "snug/v1/"),
    "worker/report": ("worker/", STATUS_MACROS, "tensorboard/"),
    "server": ("server/", "worker/program/", "proto/", "snug/v1/"),
    "server/plan": ("server/plan/", "worker/program/", "proto/", "snug/v1/"),
    "server/place": ("server/place/", "server/plan/", "proto/", "snug/v1/"),
    "server/sim": (
        "server/sim/",
        "server/place/",
        "server/plan/",
        "server/job/",
        "worker/program/",
        "proto/",
        "snug/v1/",
    ),
    "client": ("client/", "proto/", "snug/v1/"),
    "tests": tuple(f"{folder}/" for folder in FOLDERS) + ("snug/v1/",),
}

TORCH = re.compile(r"^<(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"^<(cuda|cublas|cudnn|nccl)\w*[./]")
PROTOBUF = re.compile(r"\.pb\.h[>\"]$|^[<\"]google/protobuf/")
OUTER_WORLD = re.compile(r"^[<\"](grpcpp/|absl/time/clock\.h|chrono>)")  # decisions are pure
LIBRARIES = {"torch": TORCH, "CUDA": CUDA, "protobuf": PROTOBUF, "clock or gRPC": OUTER_WORLD}
# The libraries that a folder may not include. The longest folder that fits counts.
FORBIDDEN_LIBRARIES = {
    "kernels": ("torch", "CUDA", "protobuf"),
    "kernels/cuda": ("torch", "protobuf"),
    "worker": ("protobuf",),
    "worker/program": ("torch", "CUDA", "protobuf"),
    "worker/link": ("torch", "CUDA"),
    "worker/report": ("torch", "CUDA"),
    "server": ("torch", "CUDA"),
    "server/plan": ("torch", "CUDA", "clock or gRPC"),
    "server/place": ("torch", "CUDA", "clock or gRPC"),
    "server/sim": ("torch", "CUDA", "clock or gRPC"),
    "client": ("torch", "CUDA"),
    "proto": ("torch", "CUDA"),
}
# Device code has no branches for who compiles it: what the emulation of CUDA runs is what nvcc
# compiles.
DEVICE_CODE = re.compile(r"^kernels/.*\.cuh?$")
BRANCH = re.compile(r"^\s*#\s*(if|ifdef|elif|else)\b|cuda_on_cpu|emulat", re.IGNORECASE)
# Names that stand in a few places only: (pattern, where they may, what it is). Tests may name all
# but the last two.
CONFINED = (
    (re.compile(r"\bgrpc::"), r"(server/grpc|client)/", "gRPC"),
    (re.compile(r"\bSQLite|\bsqlite3"), r"server/job/(\w*store\w*|database)\.", "SQLite"),
    (re.compile(r"\bprometheus(::|/)"), r"server/metrics/", "prometheus-cpp"),
    (re.compile(r"\bnvml", re.IGNORECASE), r"server/node/", "NVML"),
    (re.compile(r"\btorch::autograd\b|\brequires_grad"), r"tests/", "LibTorch's autograd"),
    (
        re.compile(r"\btorch::(load|jit|pickle\w*)\b|\bimport pickle\b|\btorch\.load\b"),
        r"$^",
        "pickle",
    ),
)


class Tree:
    """Files of the repository: path from its root -> text."""

    def __init__(self, files):
        self.files = files
        # proto/google is not ours: copied, as it was.
        files = {p: t for p, t in files.items() if not p.startswith("proto/google/")}
        self.code = {
            p: t for p, t in files.items() if p.endswith(CODE) and "." in p or p in TOP_LEVEL
        }
        self.cpp = {p: t for p, t in files.items() if p.endswith(CPP)}
        self.includes = {p: source.includes(t) for p, t in self.cpp.items()}


def line_of(text, wanted):
    return next((i for i, line in enumerate(text.splitlines(), 1) if wanted in line), 1)


def folder_rule(table, path):
    """The entry of the longest folder that holds the path."""
    fits = [folder for folder in table if path.startswith(folder + "/")]
    return table[max(fits, key=len)] if fits else None


def includes_follow_the_tree(tree):
    for path, includes in tree.includes.items():
        allowed = folder_rule(MAY_INCLUDE, path)
        for include in includes:
            header = include.strip('<>"')
            ours = header.split("/")[0] in FOLDERS or header.startswith("snug/v1/")
            if include[0] == '"' and "/" not in header:
                message = f"{include}: project headers are named from the root of the repository"
                yield Finding(path, line_of(tree.cpp[path], include), "include", message)
            elif ours and not header.startswith(allowed):
                message = f"must not include {header}; it may: {', '.join(allowed)}"
                yield Finding(path, line_of(tree.cpp[path], header), "include", message)


def libraries_stay_in_their_folders(tree):
    for path, includes in tree.includes.items():
        for library in folder_rule(FORBIDDEN_LIBRARIES, path) or ():
            for include in filter(LIBRARIES[library].search, includes):
                message = f"{include}: no {library} in this folder"
                yield Finding(path, line_of(tree.cpp[path], include), "library", message)


def torch_and_protobuf_never_meet(tree):
    """Through project headers as well: what counts is what the compiler sees in one file."""

    def reached(path, seen):
        seen.add(path)
        for include in tree.includes[path]:
            yield include
            header = include.strip('"')
            if header in tree.includes and header not in seen:
                yield from reached(header, seen)

    for path in tree.includes:
        seen = list(reached(path, set()))
        torch, protobuf = (next(filter(p.search, seen), None) for p in (TORCH, PROTOBUF))
        if torch and protobuf:
            message = f"sees both {torch} and {protobuf}: the torch wheel carries an old protobuf"
            yield Finding(path, 1, "torch-protobuf", message)


def names_stay_in_their_places(tree):
    for path, text in tree.code.items():
        if path.startswith("tests/tidy"):
            continue  # spells the patterns
        code = source.without_comments(text) if path.endswith(CPP) else text
        for pattern, places, name in CONFINED:
            is_oracle = path.startswith("tests/") and name != "pickle"
            if not path.endswith(CPP + (".py",)) or is_oracle or re.match(places, path):
                continue
            for number, line in enumerate(code.splitlines(), 1):
                if pattern.search(line):
                    yield Finding(path, number, "place", f"{name} must not be named here")


def device_code_has_no_branches(tree):
    for path, text in tree.cpp.items():
        if not DEVICE_CODE.match(path):
            continue
        for number, line in enumerate(source.without_comments(text).splitlines(), 1):
            if BRANCH.search(line):
                message = f"{line.strip()}: the same code for nvcc and for the emulation"
                yield Finding(path, number, "device", message)


def files_are_short(tree):
    for path, text in tree.code.items():
        lines = text.splitlines()
        short = path.endswith((".h", ".cuh")) or path == "README.md"
        limit = MAX_HEADER_LINES if short else MAX_FILE_LINES
        if len(lines) > limit:
            yield Finding(path, limit + 1, "size", f"{len(lines)} lines, at most {limit}")
        for number, line in enumerate(lines, 1):
            if path.endswith(".md") and UNWRAPPABLE.match(line):
                continue
            if len(line) > MAX_COLUMNS:
                message = f"{len(line)} columns, at most {MAX_COLUMNS}"
                yield Finding(path, number, "columns", message)


def functions_are_short(tree):
    for path, text in tree.code.items():
        if path.endswith(CPP):
            found = source.functions(text)
        elif path.endswith(".py"):
            found = python_functions(text)
        else:
            continue
        for function in found:
            limit = MAX_KERNEL_LINES if function.is_kernel else MAX_FUNCTION_LINES
            limit = MAX_MAIN_LINES if function.name == "main" else limit
            if function.lines > limit:
                message = f"{function.name} has {function.lines} lines, at most {limit}"
                yield Finding(path, function.line, "size", message)
            if function.parameters > MAX_PARAMETERS:
                message = f"{function.name} has {function.parameters} parameters, at most "
                yield Finding(path, function.line, "parameters", message + str(MAX_PARAMETERS))


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            parameters = [arg.arg for arg in names if arg.arg not in ("self", "cls")]
            lines = node.end_lineno - node.lineno + 1
            yield source.Function(node.name, node.lineno, lines, len(parameters), False)


def top_level_is_small(tree):
    for path in tree.files:
        top = path.split("/")[0]
        if top.startswith(".") or (top in FOLDERS + PAGES if "/" in path else top in TOP_LEVEL):
            continue
        folders = ", ".join(FOLDERS + PAGES)
        message = f"the top level holds {', '.join(sorted(TOP_LEVEL))}, {folders}, dot files"
        yield Finding(path, 1, "top-level", message)


def folders_open_with_their_rules(tree):
    for folder in FOLDERS:
        path = f"{folder}/CMakeLists.txt"
        if folder != "deploy" and not tree.files.get(path, "").startswith(f"# {folder}/ - "):
            message = f'must open with the folder\'s rules: "# {folder}/ - ..."'
            yield Finding(path, 1, "rules", message)


RULES = (
    includes_follow_the_tree,
    libraries_stay_in_their_folders,
    torch_and_protobuf_never_meet,
    names_stay_in_their_places,
    device_code_has_no_branches,
    files_are_short,
    functions_are_short,
    top_level_is_small,
    folders_open_with_their_rules,
)


def check(tree):
    """All findings, sorted by place."""
    return sorted({finding for rule in RULES for finding in rule(tree)})
