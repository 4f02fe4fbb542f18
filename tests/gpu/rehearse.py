"""Unpacks the kit in a clean root and starts every program there, as root, without a GPU.

python3 tests/gpu/rehearse.py FILE.tar.xz [--without LIBRARY]

The root has the files of Debian's packages below and of what they depend on, and torch with its
NVIDIA wheels from .venv, read-only: none of the packages that the build needs. --without takes a
library out of the kit first: the rehearsal must fail then.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("bash", "coreutils", "libc-bin", "libstdc++6", "python3", "tar", "xz-utils")
TORCH_AT = "usr/lib/python3/dist-packages"


def dependencies(names):
    """The packages and all that they depend on, of those installed."""
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Depends}, ${Pre-Depends}\t${Provides}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    depends, provided = {}, {}
    for line in listed.stdout.splitlines():
        package, needs, provides = line.split("\t")
        depends[package] = re.findall(r"(?:^|,|\|)\s*([a-z0-9.+-]+)", needs)
        for name in re.findall(r"(?:^|,)\s*([a-z0-9.+-]+)", provides):
            provided[name] = package
    found, open_names = set(), list(names)
    while open_names:
        name = open_names.pop()
        name = name if name in depends else provided.get(name)
        if name and name not in found:
            found.add(name)
            open_names += depends[name]
    return sorted(found)


def copy_packages(root, names):
    """Their files, in a root whose /bin and /lib are those of /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for folder in ("dev", "proc", "tmp", "etc"):
        (root / folder).mkdir()
    listed = subprocess.run(["dpkg", "-L", *names], capture_output=True, text=True, check=True)
    for path in map(pathlib.Path, listed.stdout.splitlines()):
        if not path.is_absolute() or "share/doc" in str(path) or "share/man" in str(path):
            continue
        to = root / str(path).lstrip("/")
        if path.is_symlink() and not to.is_symlink() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            to.symlink_to(os.readlink(path))
        elif path.is_file() and not path.is_symlink():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)


def torch_folders():
    """torch, and the NVIDIA wheels beside it."""
    found = importlib.util.find_spec("torch")
    if found is None:
        sys.exit("no torch for this Python: run it with that of .venv")
    torch = pathlib.Path(found.origin).parent
    return [torch, torch.parent / "nvidia"]


def rehearse(root, archive, without):
    """The exit code of `day.py check` in there."""
    kit = root / "kit"
    kit.mkdir()
    subprocess.run(["tar", "-xJf", archive, "-C", kit], check=True)
    if without:
        (kit / "lib" / without).unlink()
    script = ["set -e", "mount --make-rprivate /"]
    for folder in torch_folders():
        to = root / TORCH_AT / folder.name
        to.mkdir(parents=True)
        script.append(f"mount --bind -o ro '{folder}' '{to}'")
    script.append(f"mount -t proc proc '{root}/proc'")
    script.append(f"mount --bind /dev '{root}/dev'")
    script.append(f"/usr/sbin/chroot '{root}' /sbin/ldconfig")
    check = "python3 -B /kit/tests/gpu/day.py check"
    script.append(f"exec env -i PATH=/usr/bin:/bin HOME=/tmp /usr/sbin/chroot '{root}' {check}")
    # In a namespace of mounts of its own, so that none of them outlives it.
    return subprocess.run(["unshare", "--mount", "bash", "-c", "\n".join(script)]).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--without", help="a library to take out first, e.g. libre2.so.9")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("as root: it changes the root of a process")
    root = pathlib.Path(tempfile.mkdtemp(prefix="snug-root-"))
    try:
        packages = dependencies(PACKAGES)
        copy_packages(root, packages)
        print(f"a root of {len(packages)} packages: {' '.join(packages)}", flush=True)
        code = rehearse(root, options.archive.resolve(), options.without)
    finally:
        shutil.rmtree(root)
    sys.exit(code)


if __name__ == "__main__":
    main()
