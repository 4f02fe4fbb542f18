"""Files of a model that become others between the check of a job and its start: the worker has the
daemon's rights, and reads what the job's owner was let open, or nothing."""

import shutil
import unittest

from tests.harness import jobs
from tests.harness.daemon import DEVICE, Daemon


class OpenedFilesTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.file = jobs.lora_folder(self.daemon.folder / "lora")
        self.model = self.file.parent / "model"
        self.daemon.run("drain", DEVICE)

    def checked(self):
        """A job that has been checked, and waits to be placed."""
        name = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(name, "QUEUED")
        return name

    def names_in_output(self, name):
        output = self.daemon.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        return {path.name for path in output.iterdir()}

    def test_weights_that_became_a_link(self):
        self.swap_and_place(self.checked())

    def test_weights_that_became_a_link_while_no_daemon_ran(self):
        name = self.checked()
        self.swap_and_place(name, self.daemon.restart)

    def swap_and_place(self, name, meanwhile=lambda: None):
        weights = self.model / "model.safetensors"
        other = self.daemon.folder / "other.safetensors"
        shutil.copy2(weights, other)  # Size and time are the same.
        weights.unlink()
        weights.symlink_to(other)
        meanwhile()
        self.daemon.run("undrain", DEVICE)
        error = self.daemon.wait_state(name, "FAILED")["error"]
        self.assertEqual(error["reason"], "INPUT_CHANGED")
        self.assertIn(str(weights), error["message"])
        # Checked anew, it is what it is now.
        again = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(again, "SUCCEEDED")

    def test_a_file_that_was_not_there_is_not_carried_along(self):
        name = self.checked()
        secret = self.daemon.folder / "secret"
        secret.write_text("{{ secret }}")
        (self.model / "chat_template.jinja").symlink_to(secret)
        self.daemon.run("undrain", DEVICE)
        self.daemon.wait_state(name, "SUCCEEDED")
        self.assertNotIn("chat_template.jinja", self.names_in_output(name))
        # It is carried along where it was there: the test would see it.
        again = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(again, "SUCCEEDED")
        self.assertIn("chat_template.jinja", self.names_in_output(again))


if __name__ == "__main__":
    unittest.main()
