"""libFuzzer targets for the parsers of what others have written, with AddressSanitizer and UBSan.

A target is a file of this folder, linked with the parser's own sources, all compiled by Debian's
clang; the schema's and Debian's libraries are as the build has them. tests/fuzz/corpus/ has some
inputs of each to begin with.

    python -m tests.fuzz.fuzz [--seconds 60] [TARGET...]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "fuzz"
JSON = ("worker/program/json", "worker/program/regular_file")
ERRORS = ("server/job/errors", "server/data/sha256")
FAMILIES = sorted((ROOT / "worker" / "program" / "families").glob("*.cc"))
# What each target is made of, without .cc.
TARGETS = {
    "safetensors": ("worker/program/safetensors_header", *JSON),
    "config": (
        *(f"worker/program/families/{file.stem}" for file in FAMILIES),
        "worker/program/json_fields",
        "worker/program/model_config",
        "worker/program/rope_config",
        "worker/program/task",
        *JSON,
    ),
    "tokenizer": ("worker/program/added_tokens", *JSON),
    "yaml": tuple(
        f"proto/snug/{name}"
        for name in ("bytes", "key_hint", "other_names", "refused_names", "yaml", "yaml_node")
    ),
    "frames": ("server/node/framing",),
    "manifest": (
        "server/artifact/checkpoints",
        "server/job/transient",
        "server/node/attempt_files",
        *ERRORS,
        *JSON,
    ),
    "page_token": ("server/api/page_token", "server/job/random_id", *ERRORS),
    "webhook_url": ("server/job/webhook_url", *ERRORS),
    "openai": (
        "server/http/openai_objects",
        "server/upload/uploads",
        "server/job/random_id",
        *ERRORS,
        *JSON,
    ),
}
PACKAGES = ("protobuf", "libcrypto", "yaml-cpp", "absl_status", "absl_statusor", "absl_strings")
PACKAGES += ("absl_time", "absl_synchronization", "absl_cord", "absl_cleanup")
SANITIZERS = "address,undefined"
# The schema's library and Debian's are not compiled for it: their vectors look damaged to ours.
OPTIONS = {"ASAN_OPTIONS": "detect_container_overflow=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
LARGEST = 1 << 16  # Bytes of an input.
SLOWEST_S = 1  # Of one input.
MOST_MB = 1024  # Of the process.


def _run(*words):
    """A command that must succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-3000:]}")
    return done.stdout


def build(target, build_dir):
    """Compiles and links a target; its path. `build_dir`: of a build with the schema's library."""
    out = build_dir / "tests" / "fuzz"
    flags = ["-std=c++20", "-O1", "-g", f"-I{ROOT}", f"-isystem{build_dir / 'generated'}"]
    objects = []
    for source in (f"tests/fuzz/{target}", *TARGETS[target]):
        made = out / f"{source.replace('/', '_')}.o"
        made.parent.mkdir(parents=True, exist_ok=True)
        options = (*flags, f"-fsanitize=fuzzer-no-link,{SANITIZERS}", "-fno-sanitize-recover=all")
        _run("ccache", "clang++", *options, "-c", ROOT / f"{source}.cc", "-o", made)
        objects.append(made)
    libraries = [build_dir / "proto" / name for name in ("libsnug_proto.a", "libsnug_rpc.a")]
    shared = _run("pkg-config", "--libs", *PACKAGES).split()
    program = out / target
    _run("clang++", f"-fsanitize=fuzzer,{SANITIZERS}", *objects, *libraries, *shared, "-o", program)
    return program


def run(target, build_dir, seconds):
    """Runs a target for so long: (how many inputs, what it said where it found something)."""
    program = build(target, build_dir)
    grown = build_dir / "tests" / "fuzz" / f"corpus-{target}"
    grown.mkdir(exist_ok=True)
    limits = [f"-max_len={LARGEST}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MB}"]
    words = [program, grown, HERE / "corpus" / target, f"-max_total_time={seconds}", *limits]
    done = subprocess.run(
        [*map(str, words), f"-artifact_prefix={grown}-", "-print_final_stats=1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **OPTIONS},
    )
    inputs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    found = "" if done.returncode == 0 else done.stderr[-5000:]
    return int(inputs[1]) if inputs else 0, found


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    given = parser.parse_args()
    bad = 0
    for target in given.targets or TARGETS:
        inputs, found = run(target, given.build, given.seconds)
        print(f"{target}: {inputs} inputs{': ' + found if found else ''}", flush=True)
        bad += bool(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
