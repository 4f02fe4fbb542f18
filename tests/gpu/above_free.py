"""A capacity above what the GPU has is refused when the daemon starts, by a message that says so;
one that it has is not."""

import json
import subprocess
import tempfile

from tests.gpu.day import BIN


def start(capacity, seconds):
    """(exit code or None where it went on, what it said)"""
    with tempfile.TemporaryDirectory() as state:
        command = [BIN / "snugd", "--state-dir", state, "--socket", f"{state}/s"]
        command += ["--device", f"gpu:0={capacity}", "--metrics-port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            said, _ = process.communicate(timeout=seconds)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.terminate()
            said, _ = process.communicate()
            return None, said


def main():
    refused, why = start("4096GiB", 25)
    accepted, said = start("4GiB", 25)
    print(json.dumps({"refused_code": refused, "accepted": accepted is None}))
    print(why[-600:], said[-600:], sep="\n----\n")
    if refused in (None, 0) or "gpu:0" not in why:
        raise SystemExit("4096 GiB were not refused")
    if accepted is not None:
        raise SystemExit("4 GiB were refused")


if __name__ == "__main__":
    main()
