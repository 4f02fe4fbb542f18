"""No file that a user names is parsed in snugd. What its libraries open, and what they read, stands
in a table here, file by file and with the reason: what is new fails until it has a row.

Readers of models and adapters (worker/program) open files by one function, which snugd keeps to
folders of its own state before it serves anybody. Lists of files, their names and sizes are no
content, nor is what a socket receives.
"""

import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ["SNUG_SOURCE_DIR"])
# What opens a file or reads from a descriptor, of no class. Where a parameter's type or nothing is
# in the brackets, it is a declaration or another function.
CALL = re.compile(
    r"(?:(?<![\w.>:])|(?<=\W::)|(?<=std::))"
    r"(open|open64|openat2?|creat|fopen|freopen|fdopen|dlopen|mmap|read|readv|pread|preadv|getdelim"
    r"|sendfile|ReadSmallFile|ReadJson|ReadJsonMessage|ReadJsonFile|OpenToRead|RegularFile::Open"
    r"|SSL_\w+_file|BIO_new_file)\((?!const |char\* |\))"
    r"|\bprogram::(ReadJsonFile|OpenToRead|RegularFile::Open)\(|\b(SYS_open(?:at2?)?)\b"
    r"|\bstd::(ifstream|fstream|filebuf)\b|\b(?:std::filesystem|fs)::(copy(?:_file)?)\("
    r"|\b(YAML::LoadFile|SQLite::Database)>?\(|\b(set_ca_cert_path)\("
)
# What worker/program reads by: ReadOnlyBelow binds them.
GUARDED = ("ReadJsonFile", "OpenToRead", "RegularFile::Open")
OTHER_PROGRAMS = ("sim", "worker_log")  # Libraries of server/ that are not in snugd.
GUARD = re.compile(r"(?m)^  snug::program::ReadOnlyBelow\(\{([^{}]+)\}\);$")
BELOW_STATE = re.compile(r'state \+ "/\w+"')

NO_FILE = "no file: sockets and pipes"
ONLY_NAMED = "no file: something else is called so"
SYSTEM = "the system's: /proc, /sys, /dev"
OPERATOR = "the operator's: named by the daemon's flags or its configuration"
STORE = "the store and what lies beside it, which only the daemon writes"
MADE_HERE = "below the state folder, with limits: what a worker, a shim or snug-prepare has written"
AS_BYTES = "as bytes, which are handed on or hashed: nothing looks into them"

# By file: what it calls, in the order of the text, and what that opens or reads.
READS = {
    "server/answer/answer_worker.cc": ("read read", NO_FILE),
    "server/answer/asked_model.cc": ("ReadSmallFile", MADE_HERE),  # A template, as it is.
    "server/api/audit.cc": ("open", STORE),
    "server/api/backup.cc": ("pread open", STORE),
    "server/api/file_sender.cc": ("open pread", AS_BYTES),  # Of a job's output.
    "server/api/metric_history.cc": ("pread open fdopen", MADE_HERE),
    "server/artifact/manifest.cc": ("ReadSmallFile", MADE_HERE),
    "server/config.cc": ("ReadSmallFile", OPERATOR),
    "server/daemon.cc": ("open ReadSmallFile", STORE),
    "server/data/held_files.cc": ("open", AS_BYTES),  # Users' files: opened, and handed on.
    "server/data/prepare_command.cc": ("read read", ONLY_NAMED),
    "server/data/prepared_dataset.cc": ("ReadJsonMessage ifstream", MADE_HERE),
    "server/data/prompts.cc": ("ReadJsonFile", MADE_HERE),
    "server/data/sha256.cc": ("pread open", AS_BYTES),  # Users' files among them.
    "server/failpoint.h": ("open", "written only, and in no build that is installed"),
    "server/http/http_server.cc": (
        "SSL_use_certificate_chain_file SSL_use_PrivateKey_file",
        OPERATOR,
    ),
    "server/http/https_client.cc": ("set_ca_cert_path", OPERATOR),
    "server/inspect/file_access.cc": ("open SYS_openat2 open", AS_BYTES),  # For snug-inspect.
    "server/job/database.cc": ("SQLite::Database", STORE),
    "server/job/job_store.cc": ("open", STORE),
    "server/job/schema.cc": ("open", STORE),
    "server/job/store_commit.cc": ("open", STORE),
    "server/job/witness.cc": ("open pread", STORE),
    "server/node/attempt_files.cc": (
        "open ReadSmallFile open read open ReadSmallFile ReadJsonMessage",
        MADE_HERE,
    ),
    "server/node/delegated_group.cc": ("open ReadSmallFile ReadSmallFile ReadSmallFile", SYSTEM),
    "server/node/descriptors.cc": ("open", SYSTEM),
    "server/node/json_file.cc": ("ReadSmallFile ReadSmallFile", "what its callers here name"),
    "server/node/known_gpus.cc": ("ReadJson", STORE),
    "server/node/launcher.cc": ("ReadSmallFile", SYSTEM),
    "server/node/link_server.cc": ("read read", NO_FILE),
    "server/node/measure.cc": ("ReadJson", STORE),
    "server/node/nvml.cc": ("dlopen", SYSTEM),
    "server/node/process.cc": ("read", NO_FILE),
    "server/node/process_memory.cc": ("ifstream", SYSTEM),
    "server/node/rotated_log.cc": ("open pread", MADE_HERE),
    "server/node/session.cc": ("open read", SYSTEM),
    "server/node/shared_weights.cc": ("open", "locked and removed only"),
    "server/node/shim_watch.cc": ("open", "locked only"),
    "server/node/tls_files.cc": ("ReadSmallFile", OPERATOR),
    "server/place/host_memory.cc": ("ifstream ifstream ifstream ifstream", SYSTEM),
    "server/scheduler/in_hand.cc": ("open ReadSmallFile", STORE),
    "server/shim/confine.cc": ("open", "a name for the kernel's rule, by O_PATH"),
    "server/upload/uploads.cc": ("ifstream open open", STORE),  # Uploads are written and hashed.
    "server/webhook/sender.cc": ("ReadSmallFile", OPERATOR),
    "worker/program/files/opened_files.cc": ("open", "OpenToRead, which ReadOnlyBelow binds"),
    "worker/program/files/regular_file.cc": ("pread", "what OpenToRead has opened"),
    "worker/program/lowering/script_loops.cc": ("read", ONLY_NAMED),
}


def sources():
    """What snugd is made of, by path."""
    listing = (ROOT / "server/CMakeLists.txt").read_text(encoding="utf-8")
    paths = {ROOT / "server/main.cc", *(ROOT / "server").rglob("*.h")}
    for library, names in re.findall(r"add_library\(snug_(\w+) STATIC([^)]*)\)", listing):
        if library not in OTHER_PROGRAMS:
            paths |= {ROOT / "server" / name for name in names.split()}
    for folder in ("worker/program", "proto"):
        paths |= {path for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".h")}
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def code(text):
    """The text without its comments."""
    return "\n".join(line.split("//", maxsplit=1)[0].rstrip() for line in text.splitlines())


def calls(path, text):
    """What a file calls to open or to read, in order."""
    found = [next(filter(None, match.groups())) for match in CALL.finditer(code(text))]
    bound = GUARDED if path.startswith("worker/program/") else ()
    return " ".join(call for call in found if call not in bound)


def without_row(texts):
    """Files that call otherwise than their row says, with what they call."""
    found = {path: calls(path, text) for path, text in texts.items()}
    return {path: said for path, said in found.items() if said != READS.get(path, ("",))[0]}


def is_guarded(main):
    """Whether snugd's main() keeps its readers to the state folder before anything is served."""
    text = code(main)
    guard, begin = GUARD.search(text), text.find("Daemon::Create(")
    state = text.find("const std::string& state = config->state_dir();")
    if guard is None or not 0 <= state < guard.start() < begin:
        return False
    return all(BELOW_STATE.fullmatch(folder.strip()) for folder in guard[1].split(","))


class OpensTest(unittest.TestCase):
    maxDiff = None

    def test_whatever_is_opened_has_its_reason(self):
        texts = sources()
        self.assertGreater(len(texts), 300)  # It did find them.
        self.assertEqual(without_row(texts), {}, "opened or read without a row in READS")
        self.assertEqual(set(READS) - set(texts), set(), "a row of which nothing is left")

    def test_a_new_reader_is_found(self):
        for line in (
            "  std::ifstream file(path);",
            "  const auto json = nlohmann::json::parse(std::ifstream(path));",
            "  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);",
            "  const int fd = ::openat(folder, name, O_RDONLY);",
            "  return syscall(SYS_openat2, folder, name, &how, sizeof how);",
            '  FILE* file = std::fopen(path.c_str(), "re");',
            "  void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);",
            "  if (pread(fd, header.data(), header.size(), 0) < 0) return;",
            "  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(spec.model(), kMost));",
            "  ASSIGN_OR_RETURN(const auto json, program::ReadJsonFile(path, {}));",
            "  ASSIGN_OR_RETURN(auto file, program::RegularFile::Open(path));",
            "  const YAML::Node node = YAML::LoadFile(path);",
            "  fs::copy_file(from, to);",
        ):
            for path in ("server/job/new.cc", "server/data/held_files.cc"):
                there = ROOT / path
                text = there.read_text(encoding="utf-8") if there.exists() else ""
                self.assertEqual(without_row({path: text}), {}, path)
                self.assertEqual(set(without_row({path: f"{text}{line}\n"})), {path}, line)
        # A reader of worker/program that goes its own way is one as well.
        self.assertTrue(without_row({"worker/program/files/new.cc": "  std::ifstream f(path);"}))

    def test_what_opens_nothing_is_none(self):
        for line in (
            "// As open(path) does.",
            "  const int fd = reach.open(path);",
            "ssize_t Connection::read(char* to, size_t size) {",
            "  return Witness::open(path);",
            "absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t limit);",
            "  ssize_t read(char* to, size_t size) override;",
            "  return StreamCall(open(), pool_);",
            "  std::ofstream(path) << text;",
        ):
            self.assertEqual(without_row({"server/job/new.cc": line}), {}, line)

    # Nobody loosens later what main() has tied.
    def test_snugd_reads_below_its_state_folder_alone(self):
        texts = sources()
        main = texts["server/main.cc"]
        self.assertTrue(is_guarded(main))
        here = [path for path in texts if path.startswith("server/")]
        tying = [path for path in here if re.search(r"\bReadOnlyBelow\(", code(texts[path]))]
        self.assertEqual(tying, ["server/main.cc"])
        self.assertEqual(len(GUARD.findall(main)), 1)

    def test_a_main_that_has_lost_its_guard_is_found(self):
        main = (ROOT / "server/main.cc").read_text(encoding="utf-8")
        self.assertTrue(is_guarded(main))
        line = GUARD.search(main)[0]
        lost = main.replace(line + "\n", "")
        serving = "  puts((*daemon)->Banner().c_str());\n"
        self.assertIn(serving, lost)
        for mistaken in (
            lost,
            main.replace(line, f"  // {line.strip()}"),
            main.replace(line, "  snug::program::ReadOnlyBelow({});"),
            main.replace(line, '  snug::program::ReadOnlyBelow({"/"});'),
            main.replace(line, f"  if (config->careful())\n  {line}"),
            lost.replace(serving, f"{line}\n{serving}"),
        ):
            self.assertNotEqual(mistaken, main)
            self.assertFalse(is_guarded(mistaken), mistaken)


if __name__ == "__main__":
    unittest.main()
