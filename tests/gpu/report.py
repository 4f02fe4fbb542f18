"""Prints what was expected beside what was measured, in Markdown.

python3 tests/gpu/report.py RESULTS_DIR [--expected tests/gpu/expected.md]

A row of expected.md names a figure: part/program/path, where the path leads through the lines of
JSON that the program printed. What has no figure, because its part has not run or its program
failed, is "not measured". Below the table stand the programs that failed, with their last words.
"""

import argparse
import json
import pathlib
import re

EXPECTED = pathlib.Path(__file__).parent / "expected.md"
# What a line of figures is called by, where a program prints several.
LINE_NAMES = ("row", "ceiling", "probe")


def read_results(folder):
    """{part: {program: line of the results}}"""
    results = {}
    for path in sorted(pathlib.Path(folder).glob("?.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        results[path.stem] = {line["name"]: line for line in lines}
    return results


def flat(value, path=""):
    """(path, number) of all numbers in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from flat(inner, f"{path}/{i}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def kernel_rows(tail):
    """(op type, share of the copy) out of kernels_benchmark's table."""
    for line in tail.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 8 and re.fullmatch(r"[\d.]+", cells[5]):
            yield f"/{cells[0]} {cells[1]}", float(cells[5])


def figures(results):
    """{part/program/path: number}"""
    found = {}
    for part, programs in results.items():
        for name, line in programs.items():
            found[f"{part}/{name}/seconds"] = line.get("seconds")
            for printed in line.get("figures", []):
                label = next((printed[key] for key in LINE_NAMES if key in printed), None)
                prefix = f"{part}/{name}" + (f"/{label}" if label else "")
                for path, number in flat(printed):
                    found[prefix + path] = number
            if name == "kernels":
                for path, share in kernel_rows(line["tail"]):
                    found[f"{part}/{name}{path}"] = share
    return {key: value for key, value in found.items() if value is not None}


def expected_rows(text):
    """(figure, expected, unit, why) of each row of each table that has a column `figure`."""
    rows, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0] == "figure":
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not re.fullmatch(r":?-+:?", cells[0]):
            rows.append((cells[0].strip("`"), float(cells[1]), cells[2], cells[3]))
    return rows


def differences(found):
    """Figures that two programs make together."""
    gpu, cpu = found.get("A/loss_gpu/loss"), found.get("A/loss_cpu/loss")
    if gpu is not None and cpu:
        found["A/loss_gpu/relative_difference"] = abs(gpu - cpu) / abs(cpu)
    for key in [key for key in found if key.startswith("C/memory/") and key.endswith("/seen_mib")]:
        row = key.rsplit("/", 1)[0]
        for of in ("predicted", "counted"):
            if other := found.get(f"{row}/{of}_mib"):
                found[f"{row}/seen_over_{of}"] = found[key] / other
    return found


def table(rows, found):
    yield "| figure | expected | measured | ratio | unit |"
    yield "|---|---:|---:|---:|---|"
    for figure, expected, unit, _ in rows:
        if figure in found:
            ratio = f"{found[figure] / expected:.2f}" if expected else ""
            yield f"| {figure} | {expected:g} | {found[figure]:.4g} | {ratio} | {unit} |"
        else:
            yield f"| {figure} | {expected:g} | not measured | | {unit} |"


def failures(results):
    for part, programs in results.items():
        for name, line in programs.items():
            if line["code"] == 0:
                continue
            why = "over its time" if line.get("timed_out") else f"code {line['code']}"
            tests = ", ".join(line.get("failed_tests", []))
            last = line.get("tail", "").strip().splitlines()[-1:] or [""]
            yield f"- {part}/{name}: {why} {tests} `{last[0][:200]}`"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--expected", type=pathlib.Path, default=EXPECTED)
    options = parser.parse_args()
    results = read_results(options.results)
    found = differences(figures(results))
    print("\n".join(table(expected_rows(options.expected.read_text(encoding="utf-8")), found)))
    failed = list(failures(results))
    ran = sum(len(programs) for programs in results.values())
    print(f"\n{ran} programs ran, {len(failed)} of them failed.\n")
    print("\n".join(failed))


if __name__ == "__main__":
    main()
