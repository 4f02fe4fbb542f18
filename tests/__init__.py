"""The project's tests, as a package, so that those in Python can share what is in harness/."""
