"""snugd with GPUs: a driver's library of the test's own tells of them (testing/fake_nvml.cc), and
the worker that trains nothing stands for the one that is built with CUDA. No GPU is used.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FAKE, ONE_AT_A_TIME, FakeDaemon

LIBRARY = os.environ["SNUG_FAKE_NVML"]
MIB, GIB = 1 << 20, 1 << 30
LONG = "steps=100000 step_ms=50"
ALL = ("gpu:0", "gpu:1", "cpu:0")


class Machine:
    """Two GPUs, of 8 and 4 GiB; the worker for them; a folder for both."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-gpu-"))
        self.worker = self.folder / "worker-with-cuda"
        shutil.copy(FAKE, self.worker)
        self.world = self.folder / "nvml"
        os.environ["FAKE_NVML"] = str(self.world)  # For every snugd that is started from here.
        self.tell()
        self.settings = f"worker_cuda: {self.worker}\ngpu_library: {LIBRARY}\n" + ONE_AT_A_TIME

    def tell(self, taken=(0, 0), more="", count=(0, 1)):
        """What the driver says from now on: bytes taken of each GPU, further lines, and which of
        the GPUs there are in which order."""
        lines = (
            f"gpu GPU-aa {8 * GIB} {8 * GIB - taken[0]} NVIDIA A\n",
            f"gpu GPU-bb {4 * GIB} {4 * GIB - taken[1]} NVIDIA B\n",
        )
        whole = "driver 580.65.06\n" + "".join(lines[each] for each in count) + more
        aside = self.folder / "nvml.new"
        aside.write_text(whole)
        aside.rename(self.world)

    def close(self):
        shutil.rmtree(self.folder)


class GpuTest(unittest.TestCase):
    """cpu:0, a part of gpu:0, and what is free of gpu:1, all at once."""

    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)
        flags = ("--device", "gpu:0=2GiB", "--device", "gpu:1")
        self.daemon = FakeDaemon("cpu:0=1GiB", self.machine.settings, flags)
        self.addCleanup(self.daemon.close)

    def devices(self):
        """`snug devices`, by name."""
        return {each["name"]: each for each in self.daemon.json("devices")["devices"]}

    def run_everywhere(self):
        """A job on each device; their ids by device."""
        names = [self.daemon.submit_script(LONG) for _ in ALL]
        return {self.daemon.wait_step(name, 1)["device"]: name for name in names}

    def test_a_worker_of_a_gpu_is_the_one_with_cuda_and_sees_that_gpu_alone(self):
        running = self.run_everywhere()
        for device, uuid in (("gpu:0", "GPU-aa"), ("gpu:1", "GPU-bb"), ("cpu:0", None)):
            proc = pathlib.Path("/proc") / str(self.daemon.job(running[device])["worker_pid"])
            words = proc.joinpath("environ").read_bytes().decode().split("\0")
            environment = dict(word.split("=", 1) for word in words if word)
            program = proc.joinpath("cmdline").read_bytes().decode().split("\0")[0]
            self.assertEqual(environment.get("CUDA_VISIBLE_DEVICES"), uuid)
            self.assertEqual(program, str(self.machine.worker) if uuid else FAKE)
            if uuid:
                self.assertEqual(environment["CUDA_DEVICE_ORDER"], "PCI_BUS_ID")
                self.assertEqual(environment["CUDA_MODULE_LOADING"], "LAZY")
                self.assertEqual(environment["CUDA_MPS_PIPE_DIRECTORY"], "/dev/null")
            folder = self.daemon.attempt(running[device])
            self.assertIn(device.encode(), (folder / "assignment.binpb").read_bytes())

    def test_jobs_are_placed_on_all_devices_gpus_first(self):
        running = self.run_everywhere()
        self.assertEqual(set(running), set(ALL))
        reserved = {name: int(each["reserved_bytes"]) for name, each in self.devices().items()}
        for device, name in running.items():
            budget = int(self.daemon.job(name)["memory"]["budget_bytes"])
            self.assertEqual(reserved[device], budget, device)
        last = self.daemon.submit_script("steps=2")
        wait_for(lambda: "waits for" in self.daemon.job(last)["reason"], "a reason to wait")
        for device in ALL:
            self.assertIn(device, self.daemon.job(last)["reason"])
        self.daemon.run("cancel", running["gpu:1"])
        self.assertEqual(self.daemon.wait_state(last, "SUCCEEDED")["device"], "gpu:1")
        self.assertEqual(self.devices()["gpu:1"]["reserved_bytes"], "0")

    def test_devices_are_described(self):
        first, second = self.devices()["gpu:0"], self.devices()["gpu:1"]
        self.assertEqual((first["model"], first["uuid"]), ("NVIDIA A", "GPU-aa"))
        self.assertEqual(int(first["total_bytes"]), 8 * GIB)
        self.assertEqual(int(first["capacity_bytes"]), 2 * GIB)
        self.assertEqual(int(second["capacity_bytes"]), 3 * GIB)  # 1 GiB stays free.
        self.assertEqual(int(first["context_bytes"]), 16 * MIB)
        self.assertEqual(int(self.devices()["cpu:0"]["context_bytes"]), 8 * MIB)
        self.assertNotIn("measured_bytes", self.devices()["cpu:0"])
        self.assertIn("NVIDIA A", self.daemon.run("devices").stdout)

    # 300 MiB of the GPU are the worker's, 200 MiB somebody else's; then the driver falls silent.
    def test_what_the_driver_says_of_processes_is_shown(self):
        name = self.daemon.submit_script(LONG)
        pid = self.daemon.wait_step(name, 1)["worker_pid"]
        self.machine.tell((500 * MIB, 0), f"process 0 {pid} {300 * MIB}\nprocess 0 1 {50 * MIB}\n")
        wait_for(lambda: self.devices()["gpu:0"].get("measured_bytes") == str(300 * MIB), "bytes")
        self.assertEqual(self.devices()["gpu:0"]["others_bytes"], str(200 * MIB))
        self.assertEqual(self.devices()["gpu:1"]["measured_bytes"], "0")
        memory = self.daemon.job(name)["memory"]
        self.assertEqual(int(memory["process_peak_bytes"]), 300 * MIB)
        # Far more than its plan's few MiB, and its worker has not seen it.
        beyond = 300 * MIB - int(memory["predicted_peak_bytes"])
        self.assertEqual(int(memory["uncounted_bytes"]), beyond)
        self.assertIn("in its context, or behind its step 0", memory["warning"])
        self.assertIn(f"warning    {memory['warning']}", self.daemon.run("get", name).stdout)
        text = self.daemon.metrics()
        for line in (
            f'snug_device_memory_used_bytes{{device="gpu:0"}} {300 * MIB}',
            f'snug_device_memory_unattributed_bytes{{device="gpu:0"}} {200 * MIB}',
            f'snug_job_memory_process_peak_bytes{{device="gpu:0",job="{name}"}} {300 * MIB}',
            f'snug_job_memory_uncounted_bytes{{device="gpu:0",job="{name}"}} {beyond}',
            'snug_device_up{device="gpu:0"} 1',
        ):
            self.assertIn(line, text)
        self.machine.tell(more="fail nvmlDeviceGetMemoryInfo_v2 15\n")
        wait_for(lambda: "measured_bytes" not in self.devices()["gpu:0"], "the driver's silence")
        self.assertIn('snug_device_up{device="gpu:0"} 0', self.daemon.metrics())
        self.assertEqual(self.daemon.job(name)["state"], "RUNNING")

    # F-29: somebody takes all of both GPUs but for a little. The job that was sent then runs on the
    # CPU, and the next one when there is room again.
    def test_what_others_take_is_not_given(self):
        self.machine.tell((8 * GIB - MIB, 4 * GIB - MIB))
        wait_for(lambda: int(self.devices()["gpu:1"].get("others_bytes", 0)) > 3 * GIB, "a look")
        first = self.daemon.submit_script(LONG)
        self.assertEqual(self.daemon.wait_step(first, 1)["device"], "cpu:0")
        second = self.daemon.submit_script("steps=2")
        wait_for(lambda: "others have taken" in self.daemon.job(second)["reason"], "the reason")
        self.assertIn("cpu:0: another job runs there", self.daemon.job(second)["reason"])
        self.machine.tell()
        self.assertEqual(self.daemon.wait_state(second, "SUCCEEDED")["device"], "gpu:0")

    def test_plans_are_made_for_each_device(self):
        answer = self.daemon.json("plan", self.daemon.job_file())
        self.assertEqual(answer["device"], "gpu:0")
        choices = {choice["device"]: choice for choice in answer["devices"]}
        self.assertEqual(set(choices), set(ALL))
        self.assertTrue(all(choice["fits"] for choice in choices.values()))
        chosen = answer["plans"][answer["chosen"]]
        self.assertEqual(int(chosen["memory"]["context_bytes"]), 16 * MIB)
        self.assertEqual(chosen["peak_bytes"], choices["gpu:0"]["peak_bytes"])
        on_cpu = self.daemon.json("plan", self.daemon.job_file(), "--device", "cpu:0")
        chosen = on_cpu["plans"][on_cpu["chosen"]]
        self.assertEqual(int(chosen["memory"]["context_bytes"]), 8 * MIB)
        self.assertEqual(chosen["peak_bytes"], choices["cpu:0"]["peak_bytes"])
        job = self.daemon.wait_state(self.daemon.submit_script("steps=1"), "SUCCEEDED")
        self.assertEqual(job["device"], "gpu:0")
        done = self.daemon.run("plan", self.daemon.job_file(), "--device", "gpu:7", code=1)
        self.assertIn("gpu:7 is none of this daemon's devices", done.stderr)

    # The worker on gpu:1 holds 600 MiB when the daemon comes back: they are promised already, so
    # that the capacity that is found is the same; and nothing is measured that is known.
    def test_a_daemon_that_comes_back_finds_its_workers_on_the_gpus(self):
        running = self.run_everywhere()
        before = self.devices()["gpu:1"]
        measured = (self.daemon.state / "context.json").stat().st_mtime_ns
        pid = self.daemon.job(running["gpu:1"])["worker_pid"]
        self.machine.tell((0, 600 * MIB), f"process 1 {pid} {600 * MIB}\n")
        self.daemon.restart()
        after = self.devices()["gpu:1"]
        self.assertEqual(after["capacity_bytes"], before["capacity_bytes"])
        self.assertEqual(after["reserved_bytes"], before["reserved_bytes"])
        self.assertEqual((self.daemon.state / "context.json").stat().st_mtime_ns, measured)
        self.daemon.wait_heard(running["gpu:1"], 1)
        self.assertEqual(self.daemon.job(running["gpu:1"])["worker_pid"], pid)

    # F-31: a card was added, or the BIOS counts otherwise: what was the second GPU is the first.
    # The worker on it trains on; its bytes are promised there, and what is free is the other one.
    def test_a_worker_that_outlives_a_renumbering_keeps_its_gpu(self):
        running = self.run_everywhere()
        before = self.devices()
        self.daemon.run("cancel", running["gpu:0"])
        self.daemon.wait_state(running["gpu:0"], "CANCELLED")
        self.daemon.kill()
        self.machine.tell(count=(1, 0))
        self.daemon.start()
        after = self.devices()
        self.assertEqual([after["gpu:0"]["uuid"], after["gpu:1"]["uuid"]], ["GPU-bb", "GPU-aa"])
        self.assertEqual(after["gpu:0"]["reserved_bytes"], before["gpu:1"]["reserved_bytes"])
        self.assertEqual(after["gpu:1"]["reserved_bytes"], "0")
        self.assertEqual(self.daemon.job(running["gpu:1"])["device"], "gpu:0")
        self.daemon.wait_heard(running["gpu:1"], 1)
        added = self.daemon.submit_script("steps=2")
        self.assertEqual(self.daemon.wait_state(added, "SUCCEEDED")["device"], "gpu:1")

    # F-30: it falls off the bus with a worker on it, which ends; its job goes on where there is a
    # device. Then the driver is loaded anew, and all is as before.
    def test_a_gpu_that_is_lost_is_left_out_until_it_is_back(self):
        name = self.daemon.submit_script(f"{LONG} crash_at=2 only_epoch=1 load_ms=4000")
        self.daemon.wait_state(name, "RUNNING")
        self.assertEqual(self.daemon.job(name)["device"], "gpu:0")
        self.machine.tell(more="lost 0\n")
        self.assertEqual(self.daemon.wait_step(name, 3)["device"], "gpu:1")
        trouble = self.devices()["gpu:0"]["trouble"]
        self.assertIn("nvmlDeviceGetHandleByIndex_v2 gave 15 (GPU is lost)", trouble)
        self.assertEqual(self.devices()["gpu:1"]["trouble"], "")
        shown = self.daemon.run("devices").stdout
        self.assertIn(f"gpu:0: no job is placed there: {trouble}", shown)
        self.assertIn('snug_device_up{device="gpu:0"} 0', self.daemon.metrics())
        on_cpu, waiting = (self.daemon.submit_script(LONG) for _ in range(2))
        self.assertEqual(self.daemon.wait_step(on_cpu, 1)["device"], "cpu:0")
        wait_for(lambda: "GPU is lost" in self.daemon.job(waiting)["reason"], "the reason")
        self.machine.tell(more="life 1\n")
        self.assertEqual(self.daemon.wait_step(waiting, 1)["device"], "gpu:0")
        self.assertEqual(self.devices()["gpu:0"]["trouble"], "")
        self.assertIn('snug_device_up{device="gpu:0"} 1', self.daemon.metrics())

    # A GPU that is about to fall off the bus keeps every question for minutes. What is known of
    # before is nothing to go by: who trains goes on, and what is new goes to the CPU.
    def test_a_driver_that_keeps_a_question_gets_no_jobs(self):
        running = self.daemon.submit_script(LONG)
        self.assertEqual(self.daemon.wait_step(running, 1)["device"], "gpu:0")
        self.machine.tell(more="hang\n")
        kept = "the NVIDIA driver does not answer: it keeps a question waiting"
        wait_for(lambda: self.devices()["gpu:1"]["trouble"] == kept, "the driver's silence")
        self.assertIn('snug_device_up{device="gpu:1"} 0', self.daemon.metrics())
        self.assertNotIn("measured_bytes", self.devices()["gpu:0"])
        on_cpu, waiting = (self.daemon.submit_script(LONG) for _ in range(2))
        self.assertEqual(self.daemon.wait_step(on_cpu, 1)["device"], "cpu:0")
        wait_for(lambda: kept in self.daemon.job(waiting)["reason"], "the reason")
        self.daemon.wait_heard(running, int(self.daemon.job(running)["progress"]["global_step"]))
        self.machine.tell()
        self.assertEqual(self.daemon.wait_step(waiting, 1)["device"], "gpu:1")
        self.assertEqual(self.devices()["gpu:0"]["trouble"], "")

    # F-32: an upgrade of the driver without a restart of the machine: snugd serves what else there
    # is, and takes the GPUs back when the driver answers.
    def test_a_daemon_that_starts_without_its_driver_waits_for_it(self):
        before = self.devices()["gpu:1"]
        self.daemon.kill()
        self.machine.tell(more="fail nvmlInit_v2 18\n")
        self.daemon.start()
        shown = self.devices()["gpu:1"]
        self.assertIn("Driver/library version mismatch", shown["trouble"])
        for key in ("uuid", "model", "capacity_bytes", "total_bytes", "context_bytes"):
            self.assertEqual(shown[key], before[key])
        job = self.daemon.wait_state(self.daemon.submit_script("steps=1"), "SUCCEEDED")
        self.assertEqual(job["device"], "cpu:0")
        self.machine.tell()
        wait_for(lambda: self.devices()["gpu:1"]["trouble"] == "", "the driver's return")
        job = self.daemon.wait_state(self.daemon.submit_script("steps=1"), "SUCCEEDED")
        self.assertEqual(job["device"], "gpu:0")

    # One of two falls off the bus, the machine is restarted, and the other one is gpu:0 now.
    def test_a_gpu_that_is_gone_does_not_keep_the_daemon_from_starting(self):
        for _ in range(2):
            self.daemon.kill()
            self.machine.tell(count=(1,))
            self.daemon.start()
            self.assertEqual(self.devices()["gpu:0"]["uuid"], "GPU-bb")
            self.assertIn("this machine has 1 GPU", self.devices()["gpu:1"]["trouble"])
        self.daemon.restart()
        job = self.daemon.wait_state(self.daemon.submit_script("steps=1"), "SUCCEEDED")
        self.assertEqual(job["device"], "gpu:0")

    # A neighbour asks nobody. The job does not pay for it with tries or with a smaller plan: it
    # goes where there is room.
    def test_a_job_that_a_neighbour_drove_out_keeps_its_plan(self):
        name = self.daemon.submit_script("steps=5 oom_at=2 only_epoch=1 load_ms=4000")
        self.daemon.wait_state(name, "RUNNING")
        before = self.daemon.job(name)
        self.assertEqual(before["device"], "gpu:0")
        self.machine.tell((8 * GIB - MIB, 0))
        after = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual((after["device"], after["epoch"]), ("gpu:1", 2))
        self.assertEqual(after["memory"]["budget_bytes"], before["memory"]["budget_bytes"])
        log = self.daemon.log.read_text()
        self.assertIn("of what it was promised on gpu:0; its attempt was lost: retry 1 of 5", log)


class RefusalTest(unittest.TestCase):
    """What snugd says when it cannot have the GPU that it is told to use."""

    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)

    def refused(self, *devices, settings=None):
        """Starts snugd with these devices; the line that it ends with."""
        config = self.machine.folder / "config.yaml"
        config.write_text(f"worker: {FAKE}\n{settings or self.machine.settings}")
        command = [binary("snugd"), "--config", config, "--state-dir", self.machine.folder / "s"]
        command += ["--socket", self.machine.folder / "t", "--metrics-port", "0"]
        for device in devices:
            command += ["--device", device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.strip().splitlines()[-1]

    def test_more_than_the_gpu_has(self):
        text = self.refused("cpu:0=1GiB", "gpu:0=9GiB")
        self.assertEqual(
            text,
            "snugd: devices[1].capacity: 9 GiB (9663676416 bytes) is more than gpu:0 has: "
            "NVIDIA A, 8 GiB (8589934592 bytes)",
        )

    def test_a_gpu_that_is_not_there(self):
        text = self.refused("gpu:2=1GiB")
        self.assertEqual(
            text, "snugd: devices[0].name: gpu:2: this machine has 2 GPUs, the last is gpu:1"
        )

    def test_the_same_twice(self):
        text = self.refused("gpu:1=1GiB", "gpu:1=1GiB")
        self.assertEqual(text, "snugd: devices[1].name: gpu:1 is devices[0] already")

    def test_no_driver(self):
        settings = f"worker_cuda: {self.machine.worker}\n"
        text = self.refused("gpu:0", settings=settings + "gpu_library: libnvidia-none.so.1\n")
        self.assertIn("devices[0].name: gpu:0: no NVIDIA driver is there: libnvidia-none", text)

    def test_a_driver_that_does_not_answer(self):
        self.machine.tell(more="fail nvmlInit_v2 18\n")
        text = self.refused("gpu:0")
        self.assertIn("gpu:0: the NVIDIA driver does not answer: nvmlInit_v2 gave 18", text)

    def test_a_gpu_that_only_one_process_may_use(self):
        self.machine.tell(more="mode 1 3\n")
        text = self.refused("gpu:0=1GiB", "gpu:1")
        self.assertIn("devices[1].name: gpu:1: GPU 1 is in compute mode EXCLUSIVE_PROCESS", text)

    def test_more_than_retired_pages_leave(self):
        self.machine.tell(more=f"reserved 0 {GIB}\n")
        text = self.refused("gpu:0=8GiB")
        self.assertIn("devices[0].capacity: 8 GiB (8589934592 bytes) is more than gpu:0 has", text)
        self.assertIn("7 GiB (7516192768 bytes)", text)

    def test_no_worker_with_cuda(self):
        self.machine.worker.unlink()
        text = self.refused("gpu:0")
        self.assertIn("worker_cuda: gpu:0 needs a worker that is built with CUDA", text)
        self.assertIn(str(self.machine.worker), text)

    def test_a_worker_that_cannot_use_the_gpu(self):
        self.machine.worker.write_text("#!/bin/sh\necho no kernel image >&2\nexit 2\n")
        text = self.refused("gpu:0")
        self.assertIn("gpu:0: ", text)
        self.assertIn("--measure-context failed (exit 2", text)
        self.assertIn("no kernel image", text)


if __name__ == "__main__":
    unittest.main()
