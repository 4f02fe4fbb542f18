"""A folder of data files: which of them are the dataset, by its split's name.

In this order, as the datasets library has it:
  dataset_dict.json     a DatasetDict's save_to_disk: a folder of each split
  state.json            a Dataset's save_to_disk: it lists its files
  dataset_info.json     the library's cache: NAME-SPLIT[-00000-of-00002].arrow
  README.md             a dataset's card, whose front matter lists files (configs: data_files)
  names                 data/SPLIT-00000-of-00002.parquet; else a word of the path that means a
                        split (train, validation, dev, test, ...)
  else                  all data files are the split "train"
Files are taken in the order of their names.
"""

import fnmatch
import json
import os
import re

from errors import PrepareError
from files import given
from files.record import COMPRESSED

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
ABOUT = ("state.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json")
SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val", "eval", "evaluation"),
    "test": ("test", "testing"),
}
SHARD = re.compile(r"(?:^|/)data/(\w+)-\d{5}-of-\d{5}[^/]*$")
CACHED = re.compile(r"-(\w+?)(?:-\d{5}-of-\d{5})?\.arrow$")
MAX_FILES = 100_000  # Of a folder; more is no dataset's.
MAX_FACTS_BYTES = 16 << 20  # Of a file that describes the folder.


def data_files(folder, split="", config=""):
    """Paths of the split's files. Without a name it is "train", or the only one there is."""
    splits = _splits(folder, config)
    name = split or ("train" if "train" in splits or len(splits) != 1 else next(iter(splits)))
    if name in splits:
        return splits[name]
    if not splits:
        message = "holds no file that can be trained on (" + ", ".join(SUFFIXES) + ")"
        raise PrepareError("BAD_DATASET", message, file=folder)
    what = f'has no split "{name}"' if split else "has several splits"
    message = f"{what}; name one of: {', '.join(sorted(splits))}"
    raise PrepareError("BAD_DATASET", message, field="dataset_split", file=folder)


def _splits(folder, config):
    """{name: paths}"""
    names = {name for name in ABOUT if given.exists(os.path.join(folder, name))}
    if "dataset_dict.json" in names:
        return {
            name: _saved(os.path.join(folder, name))
            for name in _facts(folder, "dataset_dict.json").get("splits", ())
        }
    if "state.json" in names:
        return {"train": _saved(folder)}
    files = _all_files(folder)
    if "dataset_info.json" in names and any(CACHED.search(path) for path in files):
        return _grouped(folder, files, lambda path: _first(CACHED, path))
    return _of_card(folder, files, config) or _by_names(folder, files)


def _saved(folder):
    files = _facts(folder, "state.json").get("_data_files")
    if not isinstance(files, list) or not all(
        isinstance(file, dict) and isinstance(file.get("filename"), str) for file in files
    ):
        raise _wrong(folder, "state.json", 'lists no "_data_files"')
    return [os.path.join(folder, os.path.basename(file["filename"])) for file in files]


def _facts(folder, name):
    path = os.path.join(folder, name)
    try:
        with given.open_text(path) as file:
            value = json.loads(file.read(MAX_FACTS_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(folder, name, f"not readable: {error}") from error
    if not isinstance(value, dict):
        raise _wrong(folder, name, "must hold a JSON object")
    return value


def _wrong(folder, name, message):
    return PrepareError("BAD_DATASET", message, file=os.path.join(folder, name))


def _all_files(folder):
    """Data files below the folder, by their paths from it."""
    found = []
    for path in given.names_below(folder):
        if _is_data(os.path.basename(path)):
            found.append(path)
        if len(found) > MAX_FILES:
            message = f"holds more than {MAX_FILES} files"
            raise PrepareError("BAD_DATASET", message, file=folder)
    return sorted(found)


def _is_data(name):
    plain = name.lower()
    for ending in COMPRESSED:
        plain = plain.removesuffix(ending)
    # The datasets library writes the results of map() beside what it has cached.
    aside = name.startswith((".", "cache-")) or name.lower() in ABOUT
    readme = plain.startswith(("readme", "license")) and plain.endswith((".txt", ".json"))
    return plain.endswith(SUFFIXES) and not aside and not readme


def _grouped(folder, files, split_of):
    splits = {}
    for path in files:
        if split := split_of(path):
            splits.setdefault(split, []).append(os.path.join(folder, path))
    return splits


def _first(pattern, path):
    found = pattern.search(path)
    return found and found.group(1)


def _by_names(folder, files):
    if any(SHARD.search(path) for path in files):
        return _grouped(folder, files, lambda path: _first(SHARD, path))
    if any(_word_of(path) for path in files):
        return _grouped(folder, files, _word_of)
    return _grouped(folder, files, lambda path: "train")


def _word_of(path):
    words = set(re.split(r"[^a-z]+", path.lower()))
    return next((split for split, any_of in SPLIT_WORDS.items() if words & set(any_of)), None)


def _of_card(folder, files, config):
    """What the card's front matter lists, or None when it lists nothing."""
    configs = _card(folder).get("configs")
    configs = [c for c in configs if isinstance(c, dict)] if isinstance(configs, list) else []
    if not configs:
        return None
    names = [str(entry.get("config_name", "default")) for entry in configs]
    chosen = config or ("default" if "default" in names or len(names) > 1 else names[0])
    marked = [n for n, entry in zip(names, configs) if entry.get("default") is True]
    if not config and chosen not in names and marked:
        chosen = marked[0]
    if chosen not in names:
        message = f"has several configurations; name one of: {', '.join(names)}"
        raise PrepareError("BAD_DATASET", message, field="dataset_config", file=folder)
    splits = {}
    for split, pattern in _patterns(configs[names.index(chosen)]):
        matches = [path for path in files if _matches(path, pattern)]
        splits.setdefault(split, []).extend(os.path.join(folder, path) for path in matches)
    return {split: paths for split, paths in splits.items() if paths} or None


def _patterns(config):
    listed = config.get("data_files")
    listed = listed if isinstance(listed, list) else [listed]
    for entry in listed:
        if isinstance(entry, str):
            yield "train", entry
        elif isinstance(entry, dict):
            paths = entry.get("path")
            for path in paths if isinstance(paths, list) else [paths]:
                yield str(entry.get("split", "train")), str(path)


def _matches(path, pattern):
    pattern = pattern.removeprefix("./")
    # "**/" may stand for no folder at all.
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(
        path, pattern.replace("**/", "")
    )


def _card(folder):
    try:
        with given.open_text(os.path.join(folder, "README.md")) as file:
            text = file.read(MAX_FACTS_BYTES)
    except (OSError, UnicodeDecodeError):
        return {}
    if not text.startswith("---\n") or "\n---" not in text[4:]:
        return {}
    import yaml

    try:
        front = yaml.safe_load(text[4 : text.index("\n---", 4)])
    except (yaml.YAMLError, RecursionError):
        return {}
    return front if isinstance(front, dict) else {}
