"""Runs a part of the hour on the machine with the GPU, from the kit's folder.

python3 tests/gpu/day.py A|B|C|D|E [--out DIR] [--only NAME ...]
python3 tests/gpu/day.py check

Writes DIR/A.jsonl, a line a program as it ends, so that what ran is there however the part ends:
name, exit code, seconds, figures, the end of what it printed. `check` starts every program of the
kit without using a GPU, and says which library one lacks.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.gpu import parts  # noqa: E402

BIN, TEST, LIBRARIES = ROOT / "build/bin", ROOT / "build/tests/bin", ROOT / "lib"
NO_DRIVER = "CUDA driver version is insufficient"
TAIL = 16000  # Characters kept of what a program printed: a table of all kernels.


def library_folders():
    """The kit's, and those of torch and of the NVIDIA wheels beside it."""
    folders = [LIBRARIES]
    found = importlib.util.find_spec("torch")
    if found and found.origin:
        torch = pathlib.Path(found.origin).parent
        folders += [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
    return [str(folder) for folder in folders]


def environment():
    before = os.environ.get("LD_LIBRARY_PATH")
    folders = library_folders() + ([before] if before else [])
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(folders),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "SNUG_BIN_DIR": str(BIN),
        "SNUG_SOURCE_DIR": str(ROOT),
        "SNUG_PYTHON": sys.executable,
        "OMP_WAIT_POLICY": "passive",
    }


def figures_of(output):
    """The lines of JSON that a program printed."""
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def filled(word, places):
    """With what stands for {test} and the like."""
    for name, value in places.items():
        word = word.replace("{" + name + "}", str(value))
    return word


def run(program, places, seconds):
    """One line of the results."""
    command = [filled(word, places) for word in program.command]
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
            env={**environment(), **program.environment},
            start_new_session=True,
        )
    except OSError as error:
        return {"name": program.name, "code": 127, "seconds": 0.0, "tail": str(error)}
    timed_out = False
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return {
        "name": program.name,
        "code": process.returncode,
        "timed_out": timed_out,
        "seconds": round(time.monotonic() - begin, 2),
        "figures": figures_of(output),
        "failed_tests": sorted(set(re.findall(r"\[  FAILED  \] (\S+\.\S+)", output))),
        "tail": output[-TAIL:],
    }


def run_part(name, out, only):
    """Programs in their order, until the part's time is over."""
    end = time.monotonic() + parts.PART_S
    folder = tempfile.mkdtemp(prefix="snug-models-")
    parts.write_models(folder)
    places = {"bin": BIN, "test": TEST, "root": ROOT, "out": out, "models": folder}
    places["python"] = sys.executable
    with open(pathlib.Path(out) / f"{name}.jsonl", "w", encoding="utf-8") as file:
        for program in parts.PARTS[name](TEST):
            if only and program.name not in only:
                continue
            seconds = min(program.timeout_s, end - time.monotonic())
            if seconds < 5:
                result = {"name": program.name, "code": None, "tail": "not reached"}
            else:
                result = run(program, places, seconds)
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{name} {result['name']}: {result['code']} {result.get('seconds', '')}")


# ---- check --------------------------------------------------------------------------------------


def start_word(path):
    """What starts this program and ends it at once."""
    if "_test" in path.name:
        return "--gtest_list_tests"
    return "--list" if path.name == "kernels_benchmark" else "--version"


def programs():
    return sorted(p for folder in (BIN, TEST) for p in folder.iterdir() if os.access(p, os.X_OK))


def missing_libraries(listing):
    """Of an output of ldd."""
    return re.findall(r"^\s*(\S+) => not found", listing, re.M)


def starts(path):
    """Why a program does not start, or nothing: its libraries are found, and it says something of
    its own. What it says of a word that it does not know does not count against it."""
    listing = subprocess.run(
        ["ldd", path], capture_output=True, text=True, env=environment(), check=False
    )
    if missing := missing_libraries(listing.stdout):
        return f"lacks {', '.join(missing)}"
    started = subprocess.run(
        [path, start_word(path)], capture_output=True, text=True, env=environment(), check=False
    )
    if NO_DRIVER in started.stderr:  # It has come as far as to look for a GPU.
        return ""
    if started.returncode < 0 or started.returncode == 127:
        return f"ended with {started.returncode}: {started.stderr[-300:]}"
    return "" if started.stdout or started.stderr else "said nothing"


def check():
    """Prints what does not start; returns how many."""
    found = {path.name: starts(path) for path in programs()}
    bad = {name: why for name, why in found.items() if why}
    for name, why in bad.items():
        print(f"{name}: {why}")
    print(f"{len(found)} programs, {len(bad)} do not start")
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("part", choices=[*parts.PARTS, "check"])
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    parser.add_argument("--only", nargs="*", help="programs of the part, by name")
    options = parser.parse_args()
    if options.part == "check":
        sys.exit(1 if check() else 0)
    run_part(options.part, options.out, options.only)


if __name__ == "__main__":
    main()
