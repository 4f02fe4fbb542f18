"""Packs what the hour needs into one archive, for a plain image that has torch 2.11 (CUDA 13) and
Python, and none of our Debian packages.

python3 tests/gpu/pack.py FILE.tar.xz [--build DIR] [--wheels DIR] [--no-build]

Builds for sm_90 alone into build-gpu, strips, and adds: the programs, the libraries that they need
and the image lacks, the tests in Python, the wheels in DIR. Fails where the archive is larger than
64 MB. The layout is that of the checkout, so that tests find what they look for.
"""

import argparse
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 64_000_000
# Programs of one build share their kernels: a window that reaches over some of them finds that.
WINDOW_BYTES = 256 << 20
PROGRAMS = ("snugd", "snug", "snug-shim", "snug-worker", "snug-worker-cuda")
PROBES = ("snug-probe", "snug-probe-cuda")
TESTS = (
    "snug-step",
    "snug-step-cuda",
    "snug-gpu-probes",
    "kernels_benchmark",
    "worker_execute_gpu_flash_attention_test",
    "worker_execute_gpu_gpu_device_test_cuda",
    "worker_execute_gpu_open_gpu_test",
    "worker_execute_gpu_tape_test_cuda",
    "worker_train_gpu_attempt_test_cuda",
)
# Of glibc and GCC: an image whose torch runs has them, and newer ones serve.
IN_EVERY_IMAGE = re.compile(
    r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|gomp))\.so"
)
# What the tests in Python read beside themselves.
TREE = ("tests", "worker/prepare", "proto")
TREE_ENDS = (".py", ".json", ".jsonl", ".yaml", ".md", ".jinja", ".csv", ".txt", ".parquet")
TREE_ENDS += (".arrow",)


def kernel_tests():
    """Their names, as tests/kernels/CMakeLists.txt lists them."""
    text = (ROOT / "tests/kernels/CMakeLists.txt").read_text(encoding="utf-8")
    listed = re.search(r"foreach\(test\n(.*?)\)\n  snug_kernel_test\(\$\{test\} CUDA\)", text, re.S)
    return [f"kernels_{name}_cuda" for name in listed[1].split()]


def build(folder):
    """Configures and builds for sm_90 what is packed."""
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        + ["-DSNUG_CUDA=ON", "-DSNUG_CUDA_ARCHITECTURES=90-real"],
        check=True,
    )
    targets = [*PROGRAMS, *PROBES, *TESTS, *kernel_tests()]
    command = ["cmake", "--build", folder, "--parallel", str(os.cpu_count()), "--target"]
    subprocess.run(command + targets, check=True)


def libraries(listing):
    """name: path of what ldd found in the system's folders, without what every image has."""
    found = re.findall(r"^\s*(\S+) => (/(?:usr/)?lib\S*)", listing, re.M)
    return {name: path for name, path in found if not IN_EVERY_IMAGE.match(name)}


def add_programs(source, kit):
    """Stripped; returns the libraries that they need."""
    needed = {}
    for folder, names in (
        ("bin", [*PROGRAMS, *PROBES]),
        ("tests/bin", [*TESTS, *kernel_tests()]),
    ):
        to = kit / "build" / folder
        to.mkdir(parents=True)
        for name in names:
            path = source / folder / name
            listing = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
            needed |= libraries(listing.stdout)
            subprocess.run(["strip", "--strip-all", "-o", to / name, path], check=True)
    return needed


def add_tree(kit):
    """The tests and what they read, as they lie in the checkout."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *TREE], capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if name.endswith(TREE_ENDS):
            to = kit / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to)


def fill(kit, options):
    """A folder with all that is packed."""
    needed = add_programs(options.build, kit)
    (kit / "lib").mkdir()
    for name, path in needed.items():
        shutil.copy2(path, kit / "lib" / name)
        subprocess.run(["strip", "--strip-unneeded", kit / "lib" / name], check=True)
    add_tree(kit)
    if options.wheels:
        shutil.copytree(options.wheels, kit / "wheels")
    print(f"libraries: {' '.join(sorted(needed))}")
    print(f"{sum(p.stat().st_size for p in kit.rglob('*') if p.is_file()) / 1e6:.0f} MB")


def archive(kit, path):
    """Files of one kind side by side, so that the window finds what they share."""
    # The fast way: what a larger effort would find beside repetitions is a few per cent.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": WINDOW_BYTES}]
    files = sorted((p for p in kit.rglob("*") if p.is_file()), key=lambda p: (p.parent, p.name))
    with lzma.open(path, "wb", filters=filters) as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for file in files:
                tar.add(file, arcname=str(file.relative_to(kit)))
    return len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    parser.add_argument("--no-build", action="store_true", help="what is in --build as it is")
    parser.add_argument("--wheels", type=pathlib.Path, help="a folder of wheels to carry")
    options = parser.parse_args()
    if not options.no_build:
        build(options.build)
    with tempfile.TemporaryDirectory() as folder:
        fill(pathlib.Path(folder), options)
        count = archive(pathlib.Path(folder), options.archive)
    size = options.archive.stat().st_size
    print(f"{options.archive}: {count} files, packed {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
