"""What this machine knows of Debian packages: name, one-line summary, section and more.

From apt's lists (tens of thousands of packages) or, where there are none, from dpkg's own record of
what is installed, which every Debian machine has. The order and the choice depend on the names
alone.
"""

import dataclasses
import hashlib
import re
import shutil
import subprocess

DPKG_STATUS = "/var/lib/dpkg/status"
FEW = 2000  # apt knows about 63,000 packages, a minimal machine has 200 installed
NAMES = "Package|Source|Section|Depends|Description|Description-en"
FIELD = re.compile(rf"^({NAMES}): (.+)$", re.MULTILINE)
TAGS = re.compile(r"^Tag: (.+(?:\n .+)*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    summary: str
    section: str
    source: str = ""  # What it is built from.
    tags: tuple = ()  # "use::gameplaying"; about half of the packages have some.
    depends: tuple = ()  # Names of packages.


def read_packages():
    """Packages with a summary of their own, in the order of a hash of their names."""
    found = parse(_apt_lists())
    if len(found) < FEW:
        with open(DPKG_STATUS, encoding="utf-8", errors="replace") as file:
            found = {**found, **parse(file.read())}
    by_summary = {}  # -dev, -dbg and -doc packages often share one: nobody could tell them apart
    for package in sorted(found.values(), key=lambda package: package.name):
        by_summary.setdefault(package.summary, package)
    return sorted(by_summary.values(), key=lambda p: hashlib.sha256(p.name.encode()).digest())


def parse(text):
    """Paragraphs of Debian control data -> name: Package; those that lack a field are left out."""
    packages = {}
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(FIELD.findall(paragraph))
        summary = fields.get("Description") or fields.get("Description-en")
        if summary and "Package" in fields and "Section" in fields:
            section = fields["Section"].split("/")[-1]  # non-free/net is about net
            name, tags = fields["Package"], TAGS.search(paragraph)
            depends = re.split(r"[,|]", fields.get("Depends", ""))
            packages[name] = Package(
                name,
                summary.strip(),
                section,
                fields.get("Source", name).split()[0],
                tuple(re.findall(r"[^\s,]+", tags.group(1))) if tags else (),
                tuple(dict.fromkeys(part.split()[0] for part in depends if part.strip())),
            )
    return packages


def _apt_lists():
    if not shutil.which("apt-cache"):
        return ""
    command = ["apt-cache", "dumpavail"]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    return run.stdout if run.returncode == 0 else ""
