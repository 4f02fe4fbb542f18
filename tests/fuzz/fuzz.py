"""libFuzzer targets for the parsers of what others have written, with AddressSanitizer and UBSan.

A target is a file of this folder, linked with the parser's own sources, all compiled by Debian's
clang; the schema's and Debian's libraries are as the build has them. tests/fuzz/corpus/ has some
inputs of each to begin with.

    python -m tests.fuzz.fuzz [--seconds 60] [--runs INPUTS] [--largest BYTES] [--fast] [TARGET...]

--fast leaves AddressSanitizer out, and looks at which branches an input takes, not at how often:
several times as many inputs in the same time, with what a target itself checks and UBSan alone.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "fuzz"
JSON = ("worker/program/files/json", "worker/program/files/regular_file")
MESSAGES = ("proto/snug/enum_words", "proto/snug/json")
ERRORS = ("server/job/errors", "server/data/sha256")
PACKED = "worker/program/files/packed_tensors"
SAFETENSORS = ("worker/program/files/safetensors", "worker/program/files/safetensors_header")
WRITTEN = tuple(f"worker/checkpoint/{name}" for name in ("new_file", "read_file", "sha256"))
PREPARED = ("server/data/prepared_dataset", "server/data/prompts", "server/node/json_file")
YAML = tuple(
    f"proto/snug/{name}"
    for name in (
        "bytes",
        "enum_words",
        "key_hint",
        "other_names",
        "refused_names",
        "yaml",
        "yaml_node",
    )
)
FAMILIES = sorted((ROOT / "worker" / "program" / "families").glob("*.cc"))
# What each target is made of, without .cc.
TARGETS = {
    "safetensors": ("worker/program/files/safetensors_header", *JSON),
    "config": (
        *(f"worker/program/families/{file.stem}" for file in FAMILIES),
        "worker/program/files/json_fields",
        "worker/program/model_config",
        "worker/program/rope_config",
        "worker/program/task",
        *JSON,
    ),
    "config_json": (
        "worker/checkpoint/config_json",
        "worker/checkpoint/reversible_loader",
        *WRITTEN,
        *JSON,
    ),
    "tokenizer": ("worker/program/files/added_tokens", *JSON),
    "yaml": YAML,
    "frames": ("server/node/framing",),
    "manifest": (
        "server/artifact/checkpoints",
        "server/artifact/manifest",
        "server/job/transient",
        "server/node/attempt_files",
        "server/node/json_file",
        *MESSAGES,
        *ERRORS,
        *JSON,
    ),
    "attempt_records": ("server/node/attempt_files", *MESSAGES, *JSON),
    "inspect_wire": ("server/inspect/wire",),
    "json": MESSAGES,
    "witness": ("server/job/witness", "server/data/sha256"),
    "adapter_config": ("worker/program/files/adapter_config", *JSON),
    "model_index": ("worker/program/files/model_index", PACKED, *SAFETENSORS, *JSON),
    "packed_tensors": (PACKED, SAFETENSORS[1], "proto/snug/utf8", *JSON),
    "page_token": ("server/api/page_token", "server/job/random_id", *ERRORS),
    "metrics": ("server/api/metric_history", "server/node/json_file", *MESSAGES, *ERRORS, *JSON),
    "names": (
        "server/job/job_key",
        "server/job/job_ref",
        "server/job/names",
        "server/job/random_id",
        *ERRORS,
    ),
    "webhook_url": ("server/job/webhook_url", *ERRORS),
    "openai": (
        "server/http/openai_objects",
        "server/upload/uploads",
        "server/job/random_id",
        *MESSAGES,
        *ERRORS,
        *JSON,
    ),
    "dataset": (
        "worker/train/dataset",
        "worker/weights/mapped_file",
        "worker/program/batching",
        *SAFETENSORS,
        *PREPARED,
        *JSON,
    ),
    "prepared": (*PREPARED, *SAFETENSORS, *MESSAGES, *JSON),
    "prepare_error": ("server/data/prepare_command", "proto/snug/utf8", *ERRORS, *JSON),
    "prompts": ("worker/train/prompts", "server/data/prompts", *JSON),
    "worker_manifest": (
        "worker/checkpoint/manifest",
        "worker/checkpoint/sha256",
        "worker/program/files/json_text",
        *JSON,
    ),
    "metrics_log": ("worker/train/metrics_log", *WRITTEN, *JSON),
    "samples_log": ("worker/train/samples_log", *WRITTEN, *JSON),
    "event_log": ("worker/report/event_log", "worker/report/crc32c", *WRITTEN, *JSON),
    "assignment": ("worker/link/assignment", "worker/link/convert", *WRITTEN, *MESSAGES, *JSON),
    "commands": ("worker/link/command_frames", "worker/link/convert"),
    "launch": ("server/shim/launch_request",),
    "importer": (
        "client/importer",
        "client/import_datasets",
        "client/import_tools",
        "proto/snug/utf8",
        *YAML,
    ),
    "read_trace": ("server/sim/read_trace",),
}
# Compiled without what guides the search: distances between words, whose every comparison would be
# noted, which takes most of the time of job files with unknown names.
UNGUIDED = ("proto/snug/key_hint",)
# What a parser's file has beside the parser may need more: it comes from here, as the build has it.
# Where that file is one of several that were compiled as one, the linker takes what it had first.
LIBRARIES = tuple(
    f"proto/libsnug_{name}.a" for name in ("proto", "rpc", "json", "yaml", "tensorboard")
)
LIBRARIES += ("server/libsnug_job.a", "server/libsnug_node.a", "worker/libsnug_program.a")
LIBRARIES += ("server/libsnug_descriptors.a", "kernels/libsnug_kernel_sizes.a")
PACKAGES = ("protobuf", "libcrypto", "yaml-cpp", "absl_status", "absl_statusor", "absl_strings")
PACKAGES += ("absl_time", "absl_synchronization", "absl_cord", "absl_cleanup", "re2")
SANITIZERS, FAST_SANITIZERS = "address,undefined", "undefined"
# The schema's library and Debian's are not compiled for it: their vectors look damaged to ours.
# What AddressSanitizer keeps of freed memory would fill the limit over millions of inputs.
OPTIONS = {
    "ASAN_OPTIONS": "detect_container_overflow=0:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
LARGEST = 1 << 16  # Bytes of an input.
SLOWEST_S = 10  # Of one input, on a machine that has others to run.
MOST_MB = 1024  # Of the process.
FAST = ("-entropic=0", "-use_counters=0")
SHOWN_BYTES = 5000  # Of what a process said at last.
ROUND = 2_000_000  # Inputs of a process: what AddressSanitizer has for itself grows with them.


def _run(*words):
    """A command that must succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-3000:]}")
    return done.stdout


def build(target, build_dir, fast=False):
    """Compiles and links a target; its path. `build_dir`: of a build with the schema's library."""
    out = build_dir / "tests" / ("fuzz-fast" if fast else "fuzz")
    sanitizers = FAST_SANITIZERS if fast else SANITIZERS
    flags = ["-std=c++20", "-O2", "-g", f"-I{ROOT}", f"-isystem{build_dir / 'generated'}"]
    objects = []
    for source in (f"tests/fuzz/{target}", *TARGETS[target]):
        made = out / f"{source.replace('/', '_')}.o"
        made.parent.mkdir(parents=True, exist_ok=True)
        guided = "" if source in UNGUIDED else "fuzzer-no-link,"
        options = (*flags, f"-fsanitize={guided}{sanitizers}", "-fno-sanitize-recover=all")
        _run("ccache", "clang++", *options, "-c", ROOT / f"{source}.cc", "-o", made)
        objects.append(made)
    libraries = ["-Wl,-z,muldefs", "-Wl,--start-group"]
    libraries += [*(build_dir / library for library in LIBRARIES), "-Wl,--end-group"]
    shared = _run("pkg-config", "--libs", *PACKAGES).split()
    program = out / target
    _run("clang++", f"-fsanitize=fuzzer,{sanitizers}", *objects, *libraries, *shared, "-o", program)
    return program


@dataclasses.dataclass(frozen=True)
class Limits:
    """Seconds of a process, inputs of all; 0: without that limit. Bytes of an input. More words."""

    seconds: int = 0
    runs: int = 0
    largest: int = LARGEST
    words: tuple = ()


def run(target, build_dir, limits, fast=False):
    """Runs a target. (How many inputs, what it said where it found something.)"""
    program = build(target, build_dir, fast)
    grown = build_dir / "tests" / "fuzz" / f"corpus-{target}"
    grown.mkdir(parents=True, exist_ok=True)
    inputs, found = 0, ""
    while not found and (inputs == 0 or inputs < limits.runs):
        left = min(ROUND, limits.runs - inputs) if limits.runs else 0
        more, found = _round(program, grown, dataclasses.replace(limits, runs=left))
        inputs += more
        if not found and more == 0:
            found = "no input was executed"
    return inputs, found


def _round(program, grown, limits):
    """One process over so many inputs, with the corpus that those before it have grown."""
    words = [program, grown, HERE / "corpus" / program.name]
    words += [f"-max_len={limits.largest}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MB}"]
    words += [f"-max_total_time={limits.seconds}", *limits.words]
    words += [f"-runs={limits.runs}"] if limits.runs else []
    # In a file, however much it is: a process begins with its parent's peak for its own, and the
    # next round's would be over its limit.
    with tempfile.TemporaryFile() as said:
        line = [*map(str, words), f"-artifact_prefix={grown}-", "-print_final_stats=1"]
        environment = {**os.environ, **OPTIONS}
        done = subprocess.run(line, stdout=said, stderr=said, check=False, env=environment)
        said.seek(max(0, said.seek(0, os.SEEK_END) - SHOWN_BYTES))
        end = said.read().decode(errors="replace")
    inputs = re.search(r"stat::number_of_executed_units:\s*(\d+)", end)
    return int(inputs[1]) if inputs else 0, "" if done.returncode == 0 else end


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    parser.add_argument("--seconds", type=int, help="default 60, without --runs")
    parser.add_argument("--largest", type=int, default=LARGEST, help="bytes of an input")
    parser.add_argument("--runs", type=int, default=0, help="inputs of each target")
    parser.add_argument("--fast", action="store_true", help="without AddressSanitizer")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    given = parser.parse_args()
    bad = 0
    seconds = given.seconds or (0 if given.runs else 60)
    limits = Limits(seconds, given.runs, given.largest, FAST if given.fast else ())
    for target in given.targets or TARGETS:
        begin = time.monotonic()
        inputs, found = run(target, given.build, limits, given.fast)
        took = f"{time.monotonic() - begin:.0f} s"
        print(f"{target}: {inputs} inputs in {took}{': ' + found if found else ''}", flush=True)
        bad += bool(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
