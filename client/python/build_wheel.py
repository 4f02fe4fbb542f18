"""Builds the wheel of snug-client, with the stubs that protoc makes of proto/snug/v1.

    python client/python/build_wheel.py [FOLDER]     default: build/wheels

Needs protoc and grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc), setuptools
and wheel. Takes nothing from a network. Prints the wheel's path.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMES = ("artifact", "dataset", "files", "job", "metrics", "plan", "sample", "service", "token")
MESSAGES = tuple(f"snug/v1/{name}" for name in NAMES)


def write_stubs(folder):
    """Messages with their types for type checkers, and the one service."""
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None:
        sys.exit("grpc_python_plugin is missing: install protobuf-compiler-grpc")
    protoc = ["protoc", f"--proto_path={ROOT / 'proto'}"]
    files = [f"{name}.proto" for name in MESSAGES]
    subprocess.run([*protoc, f"--python_out={folder}", f"--pyi_out={folder}", *files], check=True)
    grpc = [f"--plugin=protoc-gen-grpc={plugin}", f"--grpc_out={folder}"]
    subprocess.run([*protoc, *grpc, "snug/v1/service.proto"], check=True)


def write_version(project):
    """The version of the product."""
    text = (ROOT / "proto/snug/version.h").read_text(encoding="utf-8")
    version = re.search(r'kVersion = "([0-9.]+)"', text).group(1)
    old = project.read_text(encoding="utf-8")
    project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', old), "utf-8")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="snug-client-") as temporary:
        tree = pathlib.Path(temporary) / "tree"
        shutil.copytree(HERE, tree, ignore=shutil.ignore_patterns("__pycache__", "build_wheel.py"))
        write_stubs(tree)
        write_version(tree / "pyproject.toml")
        # The wheel is made apart, so that its name is known.
        made = pathlib.Path(temporary) / "made"
        words = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, *words, "--wheel-dir", str(made), str(tree)], check=True)
        (wheel,) = made.glob("*.whl")
        print(shutil.copy(wheel, folder / wheel.name))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "wheels")
