"""kill -9 of the daemon while a job runs: the worker goes on, is adopted, and nothing is lost
or done twice.

SNUG_FAULT_KILLS sets the number of kills; the longer set is daemon_kill_long_test.
"""

import os
import tempfile
import time
import unittest

from tests.fault import runs
from tests.harness.daemon import ENDED, Daemon, wait_for


class DaemonKillTest(unittest.TestCase):
    """Every run must end as the undisturbed one."""

    @classmethod
    def setUpClass(cls):
        cls.random = runs.seeded_random()
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.job = runs.full_job(folder.name)
        cls.undisturbed = runs.Undisturbed(cls.daemon, cls.job)

    def start_job(self):
        """A job whose worker has begun; its id and the worker's process id."""
        name = self.daemon.submit(*self.job)
        running = self.daemon.wait_step(name, 1)
        self.assertEqual(running["epoch"], 1)
        return name, running["worker_pid"]

    def kill_while_it_runs(self, kills):
        """Kills at random moments until the job ends or `kills` are done; gives how many were."""
        name, pid = self.start_job()
        done = 0
        while done < kills:
            time.sleep(self.random.uniform(0.0, 1.0))
            if self.daemon.job(name)["state"] in ENDED:
                break
            self.daemon.restart()
            done += 1
            # Adopted: running again, with the process and the epoch that it had.
            job = self.daemon.wait_state(name, "RUNNING", "SUCCEEDED")
            self.assertEqual(job["epoch"], 1)
            if job["state"] == "RUNNING":
                self.assertEqual(job["worker_pid"], pid)
        self.undisturbed.check(self, self.daemon, name, epoch=1)
        return done

    def test_job_is_adopted_at_every_restart(self):
        kills = int(os.environ.get("SNUG_FAULT_KILLS", "5"))
        done = 0
        while done < kills:
            done += self.kill_while_it_runs(kills - done)
        print(f"{done} kills of the daemon")

    def test_worker_that_finishes_while_the_daemon_is_down_is_not_lost(self):
        name, _ = self.start_job()
        self.daemon.kill()
        exit_file = self.daemon.attempt(name) / "exit.json"
        wait_for(exit_file.is_file, "the worker to finish on its own")
        self.daemon.start()
        self.undisturbed.check(self, self.daemon, name, epoch=1)


if __name__ == "__main__":
    unittest.main()
