"""What each program loads: the daemon no LibTorch nor CUDA, the worker no gRPC, the shim nothing.

Read from the dynamic section, with what the libraries need in turn, as the loader would find it.
"""

import os
import re
import subprocess
import sys
import unittest

BIN = os.environ["SNUG_BIN_DIR"]
TORCH = r"^lib(torch|c10|cudart|cublas|cuda|nccl)"
SERVICE = r"^lib(grpc|prometheus|sqlite3|SQLiteCpp)"


def libraries(program):
    """Names of all shared libraries that a process of this program loads at its start."""
    path = os.path.join(BIN, program)
    run = subprocess.run(["ldd", path], check=True, capture_output=True, text=True)
    return [line.split()[0].split("/")[-1] for line in run.stdout.splitlines()]


class BinariesTest(unittest.TestCase):
    def expect_none(self, program, pattern):
        found = libraries(program)
        self.assertTrue(any(name.startswith("libc.so") for name in found), found)
        self.assertEqual([name for name in found if re.match(pattern, name)], [], program)

    def test_server_and_client_load_no_torch(self):
        beside = ("snug-shim", "snug-launch", "snug-confine", "snug-inspect")
        for program in ("snugd", "snug", *beside):
            self.expect_none(program, TORCH)

    def test_worker_loads_no_service_library(self):
        self.expect_none("snug-worker", SERVICE)

    # What it would load for GPUs doubles its start-up time.
    def test_only_the_worker_for_gpus_loads_their_libraries(self):
        gpu = r"^lib(torch_cuda|c10_cuda|cublas)\."
        self.expect_none("snug-worker", gpu)
        if os.path.exists(os.path.join(BIN, "snug-worker-cuda")):
            self.expect_none("snug-worker-cuda", SERVICE)
            found = [n for n in libraries("snug-worker-cuda") if re.match(gpu, n)]
            self.assertEqual(len(found), 3, found)  # One of each.

    # It outlives daemon and worker, so it must hold next to no memory.
    def test_shim_loads_only_the_language_runtime(self):
        self.expect_none(
            "snug-shim", r"^lib(?!c\.|m\.|stdc\+\+|gcc_s)|^(?!lib|linux-vdso|ld-linux)"
        )

    # The patterns do find what they look for.
    def test_worker_loads_torch_and_snug_loads_grpc(self):
        for program, pattern in (("snug-worker", TORCH), ("snugd", SERVICE)):
            self.assertTrue([n for n in libraries(program) if re.match(pattern, n)], program)


if __name__ == "__main__":
    sys.exit(unittest.main())
