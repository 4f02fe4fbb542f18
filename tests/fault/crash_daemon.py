"""The daemon of tests/fault/crash.py: one with failpoints, all of whose parts are at work."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from tests.harness.fake_daemon import FakeDaemon

# Nobody listens there: no call is heard, and none may be forgotten.
HOOK = "127.0.0.1:9"
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIz"


class FailingDaemon(FakeDaemon):
    """snugd with failpoints; it is started and watched by the side, and answers when it likes."""

    def __init__(self):
        shim = os.environ["SNUG_FAILING_SHIM"]
        inspect = pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug-inspect"
        settings = f"shim: {shim}\ninspect: {inspect}\nmax_jobs_per_device: 4\n"
        settings += "retention: {checkpoints: {count: 1}, sweep_seconds: 1}\n"
        self.secret = pathlib.Path(tempfile.mkdtemp(prefix="snug-secret-")) / "secret"
        self.secret.write_text(SECRET + "\n")
        settings += f'webhooks: {{secret_file: {self.secret}, hosts: ["{HOOK}"]}}\n'
        super().__init__(settings=settings)

    def close(self):
        super().close()
        shutil.rmtree(self.secret.parent)

    def start(self, failpoint=""):
        """Starts it, and does not wait."""
        self.starts += 1
        self.log = self.folder / "snugd.log"
        hits = self.folder / "hits"
        environment = {**os.environ, "SNUG_FAILPOINT": failpoint, "SNUG_FAILPOINT_LOG": str(hits)}
        command = [os.environ["SNUG_FAILING_DAEMON"], "--state-dir", self.state]
        command += ["--socket", self.socket, "--device", self.device, "--metrics-port", "0"]
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in [*command, *self.flags]],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def hits(self):
        """Names of the points that have acted, one for each time."""
        path = self.folder / "hits"
        return path.read_text().split() if path.exists() else []
