"""The archive that cpack makes runs a job from whatever folder it is unpacked into."""

import pathlib
import shutil
import tempfile
import unittest

from tests.deploy.install_test import BUILD, run, run_a_job


class ArchiveTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-archive-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_a_job(self):
        config = BUILD / "CPackConfig.cmake"
        run("cpack", "--config", config, "-G", "TGZ", "-B", self.folder / "cpack")
        (archive,) = (self.folder / "cpack").glob("*.tar.gz")
        place = self.folder / "some where"
        place.mkdir()
        run("tar", "--extract", "--file", archive, "--directory", place)
        (root,) = place.iterdir()
        self.assertEqual(root.name + ".tar.gz", archive.name)
        run_a_job(self, root, self.folder)


if __name__ == "__main__":
    unittest.main()
