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

STEPS = 300  # 8 s: time for some restarts, each of which costs the daemon about a second.


class DaemonKillTest(unittest.TestCase):
    """Every run must end as the undisturbed one."""

    @classmethod
    def setUpClass(cls):
        cls.random = runs.seeded_random()
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.job = runs.full_job(folder.name, STEPS)
        cls.undisturbed = runs.Undisturbed(cls.daemon, cls.job, STEPS)

    def start_job(self):
        """A job whose worker has begun; its id and the worker's process id."""
        name = self.daemon.submit(*self.job)
        running = self.daemon.wait_step(name, 1)
        self.assertEqual(running["epoch"], 1)
        return name, running["worker_pid"]

    def last_step(self, name):
        """The last step that the worker itself has written down."""
        return runs.steps_of(self.daemon, name, 1)[-1][0]

    def kill_while_it_runs(self, kills):
        """Kills at random moments until the worker was adopted `kills` times or the job has ended;
        gives how often it was adopted."""
        name, pid = self.start_job()
        adopted = 0
        while adopted < kills:
            time.sleep(self.random.uniform(0.0, 1.0))
            self.daemon.kill()
            at_the_kill = self.last_step(name)
            self.daemon.start()
            job = self.daemon.wait_heard(name, at_the_kill)
            self.assertEqual(job["epoch"], 1)
            if job["state"] in ENDED:
                break
            self.assertEqual((job["state"], job["worker_pid"]), ("RUNNING", pid))
            adopted += 1
        self.undisturbed.check(self, self.daemon, name, epoch=1)
        return adopted

    def test_job_is_adopted_at_every_restart(self):
        kills = int(os.environ.get("SNUG_FAULT_KILLS", "5"))
        done, jobs_without = 0, 0
        while done < kills:
            adopted = self.kill_while_it_runs(kills - done)
            done += adopted
            # One may end before its worker dials again; not one job after another.
            jobs_without = 0 if adopted else jobs_without + 1
            self.assertLess(jobs_without, 3, "no restart of the daemon heard of the worker again")
        print(f"{done} kills of the daemon, the worker adopted after each")

    def test_worker_that_finishes_while_the_daemon_is_down_is_not_lost(self):
        name, _ = self.start_job()
        self.daemon.kill()
        self.assertLess(self.last_step(name), STEPS)
        exit_file = self.daemon.attempt(name) / "exit.json"
        wait_for(exit_file.is_file, "the worker to finish on its own")
        self.assertEqual(self.last_step(name), STEPS)
        self.daemon.start()
        self.undisturbed.check(self, self.daemon, name, epoch=1)


if __name__ == "__main__":
    unittest.main()
