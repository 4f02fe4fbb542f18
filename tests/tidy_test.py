"""The tree keeps its rules (tests/tidy/rules.py), and each rule catches a violation planted for it.

python tests/tidy_test.py            the test
python tests/tidy_test.py --list     the findings, one a line
"""

import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests/tidy"))

import rules  # noqa: E402
import source  # noqa: E402

LEFT_OUT = ("build", ".git", ".venv", ".cache", "__pycache__")


def read_tree(root):
    """The files of the checkout as a Tree; build folders and caches are no part of it."""
    files = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(LEFT_OUT) or folder != root]
        folders[:] = [f for f in folders if f != "__pycache__"]
        if os.path.relpath(folder, root) == "examples":  # What make.py has written there.
            folders.clear()
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if path in (".git", ".venv", "compile_commands.json"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                files[path] = file.read()
    return rules.Tree(files)


class TreeTest(unittest.TestCase):
    def test_tree_keeps_its_rules(self):
        tree = read_tree(ROOT)
        self.assertGreater(len(tree.cpp), 10)  # it did find the sources
        findings = rules.check(tree)
        self.assertEqual([], [f"{f.path}:{f.line}: {f.rule}: {f.message}" for f in findings])


class PlantedTest(unittest.TestCase):
    """Each situation: files that break one rule, and the finding expected."""

    def expect(self, expected, files):
        found = rules.check(rules.Tree({**self.folder_rules(), **files}))
        self.assertEqual([expected], [(f.path, f.line, f.rule) for f in found])

    def clean(self, files):
        self.assertEqual([], rules.check(rules.Tree({**self.folder_rules(), **files})))

    def folder_rules(self):
        return {f"{f}/CMakeLists.txt": f"# {f}/ - rules\n" for f in rules.FOLDERS if f != "deploy"}

    def test_server_includes_the_worker(self):
        self.expect(
            ("server/a.cc", 2, "include"), {"server/a.cc": '\n#include "worker/train/step.h"\n'}
        )

    def test_server_may_include_the_program(self):
        self.clean(
            {"server/a.cc": '#include "worker/program/tape.h"\n#include "snug/v1/job.pb.h"\n'}
        )

    def test_client_includes_the_server(self):
        self.expect(("client/a.cc", 1, "include"), {"client/a.cc": '#include "server/api/api.h"\n'})

    def test_product_includes_a_test(self):
        self.expect(
            ("kernels/a.cc", 1, "include"), {"kernels/a.cc": '#include "tests/kernels/x.h"\n'}
        )

    def test_include_relative_to_the_file(self):
        self.expect(("kernels/a.cc", 1, "include"), {"kernels/a.cc": '#include "rope.h"\n'})

    def test_include_in_a_comment_is_none(self):
        self.clean({"kernels/a.cc": '// #include "server/a.h"\n/*\n#include <torch/torch.h>\n*/\n'})

    def test_torch_outside_the_worker(self):
        for path in (
            "server/a.cc",
            "client/a.cc",
            "kernels/a.h",
            "worker/program/a.h",
            "worker/link/a.cc",
        ):
            for header in ("<torch/torch.h>", "<ATen/ATen.h>", "<c10/core/Allocator.h>"):
                self.expect((path, 1, "library"), {path: f"#include {header}\n"})
        self.clean({"worker/execute/a.cc": "#include <ATen/ATen.h>\n"})

    def test_cuda_outside_its_folder(self):
        for path in ("server/a.cc", "kernels/cpu/a.cc", "worker/program/a.h"):
            self.expect((path, 1, "library"), {path: "#include <cuda_runtime.h>\n"})
        self.clean({"kernels/cuda/a.cu": "#include <cuda_runtime.h>\n"})

    def test_protobuf_outside_the_link(self):
        self.expect(
            ("worker/train/a.cc", 1, "library"),
            {"worker/train/a.cc": "#include <google/protobuf/message.h>\n"},
        )
        self.expect(
            ("worker/program/a.cc", 1, "include"),
            {"worker/program/a.cc": '#include "proto/snug/yaml.h"\n'},
        )
        self.clean({"worker/link/a.cc": "#include <google/protobuf/message.h>\n"})

    # A decision is a function of its arguments: no clock, no store, no call.
    def test_decisions_are_pure(self):
        for header, rule in (
            ('"absl/time/clock.h"', "library"),
            ("<grpcpp/grpcpp.h>", "library"),
            ('"server/job/job_store.h"', "include"),
        ):
            for path in ("server/plan/a.cc", "server/place/a.h"):
                self.expect((path, 1, rule), {path: f"#include {header}\n"})

    # Neither file includes both, but the second sees both through the header of the first.
    def test_torch_and_protobuf_meet_in_a_header(self):
        files = {
            "tests/a.h": '#include "snug/v1/job.pb.h"\n',
            "tests/b.cc": '#include <torch/torch.h>\n#include "tests/a.h"\n',
        }
        self.expect(("tests/b.cc", 1, "torch-protobuf"), files)

    def test_names_out_of_place(self):
        for path, line in (
            ("server/job/job.cc", "grpc::Status Get();"),
            ("server/api/api.h", "grpc::ByteBuffer bytes;"),
            ("server/api/a.cc", "SQLite::Database db;"),
            ("server/api/a.cc", "int x = sqlite3_open(0);"),
            ("server/job/job.cc", "prometheus::Counter& c;"),
            ("server/job/job.cc", "#include <prometheus/counter.h>"),
            ("worker/train/a.cc", "nvmlInit();"),
            ("worker/train/a.cc", "torch::autograd::grad(x);"),
            ("worker/weights/a.cc", "torch::load(x, path);"),
            ("tests/a_test.cc", "torch::load(x, path);"),
            ("worker/prepare/a.py", "import pickle"),
        ):
            self.expect((path, 2, "place"), {path: f"\n{line}\n"})
        for path in ("server/job/job_store.cc", "server/job/database.h"):
            self.clean({path: "SQLite::Database db;\n"})
        self.clean({"server/grpc/a.cc": "grpc::Status Get();  // not SQLite\n"})
        self.clean({"server/metrics/a.h": "prometheus::Counter& c;\n"})
        self.clean({"server/node/a.cc": "nvmlInit();\n"})

    def test_device_code_that_knows_its_compiler(self):
        guarded = "#ifndef A\n#define A\n%s\n#endif\n"
        for line in ("#ifdef __CUDACC__", "#if A > 1", "# else", "Run(cuda_on_cpu);"):
            self.expect(("kernels/cuda/a.cuh", 3, "device"), {"kernels/cuda/a.cuh": guarded % line})
            self.expect(("kernels/cuda/a.cu", 1, "device"), {"kernels/cuda/a.cu": line})
        for line in ("// not emulated", "#pragma unroll", "#include <cuda_runtime.h>"):
            self.clean({"kernels/cuda/a.cuh": guarded % line})
        self.clean({"kernels/a.h": "#ifdef __CUDACC__\n#endif\n"})

    def test_long_files(self):
        self.expect(("server/a.cc", 501, "size"), {"server/a.cc": "int x;\n" * 501})
        self.expect(("server/a.h", 151, "size"), {"server/a.h": "int x;\n" * 151})
        self.expect(("README.md", 151, "size"), {"README.md": "x\n" * 151})
        self.clean({"docs/a.md": "x\n" * 151})
        self.expect(("deploy/a.py", 501, "size"), {"deploy/a.py": "x = 1\n" * 501})
        self.clean({"server/a.cc": "int x;\n" * 500, "server/a.h": "int x;\n" * 150})

    # Columns are characters, not bytes.
    def test_long_lines(self):
        self.expect(("server/a.cc", 2, "columns"), {"server/a.cc": "\n// " + "x" * 98 + "\n"})
        self.expect(("check", 1, "columns"), {"check": "# " + "x" * 99 + "\n"})
        self.expect(("README.md", 1, "columns"), {"README.md": "x" * 101 + "\n|" + "x" * 100})
        self.clean({"server/a.cc": "// " + "é" * 97 + "\n"})

    def test_long_functions(self):
        def function(head, lines, tail="}\n"):
            return f"\n{head} {{\n" + "  x();\n" * (lines - 2) + tail

        for path, head, limit in (
            ("server/a.cc", "void F()", 70),
            ("server/a.cc", "Foo::Foo(int a) : a_(a), b_{1}", 70),
            (
                "server/a.cc",
                "template <typename T>\nT F(std::function<void(int)> f) const noexcept",
                69,
            ),
            ("tests/a_test.cc", "TEST(FooTest, Bar)", 70),
            ("kernels/cuda/a.cu", "__global__ void K(float* x)", 120),
            ("client/main.cc", "int main(int argc, char** argv)", 25),
        ):
            self.clean({path: function(head, limit)})
            self.expect((path, 2, "size"), {path: function(head, limit + 1)})
        in_class = "class A {\n public:" + function("int F() const override", 71) + "};\n"
        self.expect(("server/a.cc", 3, "size"), {"server/a.cc": in_class})
        python = "\ndef f():\n" + "    x = 1\n" * 70
        self.expect(("deploy/a.py", 2, "size"), {"deploy/a.py": python})

    # Neither a long namespace, a long class, nor a long table is a long function.
    def test_long_blocks_that_are_no_functions(self):
        for head in (
            "namespace snug",
            "class A : public B",
            "enum class E",
            "const int kTable[] =",
        ):
            self.clean({"server/a.cc": f"{head} {{\n" + "  // x\n" * 100 + "};\n"})

    def test_many_parameters(self):
        many = "int a, int b, std::map<int, int> c = {1, 2}, int d, int e, int f"
        self.expect(("server/a.cc", 1, "parameters"), {"server/a.cc": f"void F({many}) {{}}\n"})
        self.expect(
            ("server/a.h", 2, "parameters"), {"server/a.h": f"class A {{\n  A({many});\n}};\n"}
        )
        five = "int a, std::map<int, int> b, std::function<int(int, int)> c, int d, int e"
        self.clean({"server/a.cc": f"void F({five}) {{}}\n"})
        python = "def f(self, a, b, c, d, e{}):\n    pass\n"
        self.expect(("deploy/a.py", 1, "parameters"), {"deploy/a.py": python.format(", f")})
        self.clean({"deploy/a.py": python.format("")})

    def test_top_level(self):
        self.expect(("notes/a.md", 1, "top-level"), {"notes/a.md": "x\n"})
        self.expect(("setup.sh", 1, "top-level"), {"setup.sh": "x\n"})
        self.clean({".ci/run": "x\n", "README.md": "x\n"})

    def test_folder_without_rules(self):
        self.expect(
            ("server/CMakeLists.txt", 1, "rules"), {"server/CMakeLists.txt": "add_library()\n"}
        )


class SourceTest(unittest.TestCase):
    """What the reader of C++ must not stumble over: braces and quotes that are text."""

    def lines_of(self, text):
        return {f.name: (f.line, f.lines, f.parameters) for f in source.functions(text)}

    def test_braces_in_strings_characters_and_comments(self):
        text = (
            "void F() {\n"
            "  x = \"}\"; y = '}'; // }\n"
            '  z = R"json({"a": "}"})json"; w = 1\'000\'000;\n'
            "}\n"
            "void G() {}\n"
        )
        self.assertEqual(self.lines_of(text), {"F": (1, 4, 0), "G": (5, 1, 0)})

    def test_preprocessor_and_lambdas(self):
        text = (
            "#define M(x) \\\n  do { x\n"
            "static auto Make(int a) -> std::unique_ptr<B> {\n"
            "  return [&](int q, int r) {\n    if (a) { f(); }\n  };\n"
            "}\n"
        )
        self.assertEqual(self.lines_of(text), {"Make": (3, 5, 1)})

    def test_operators_and_destructors(self):
        text = "bool A::operator==(const A& b) const { return true; }\nA::~A() {}\n"
        self.assertEqual(set(self.lines_of(text)), {"operator==", "~A"})


if __name__ == "__main__":
    if "--list" in sys.argv:
        for finding in rules.check(read_tree(ROOT)):
            print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.message}")
    else:
        sys.exit(unittest.main())
