"""A dataset's rows in parts, each made into examples by one of several processes.

Every process reads the dataset's files from their beginning and makes examples of its own parts:
part k is the business of process k modulo their number. So nothing is sent to them, and what they
send back comes in order. The processes are forks: what was loaded before is theirs without a copy.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import tempfile

import tokenise
from chat import Chats
from checks import Checks
from errors import BadRows, PrepareError
from prepared_dataset import Examples

PART_ROWS = 256
# Below this a process costs more than it saves.
ROWS_PER_PROCESS = 1000
MAX_PROCESSES = 16
# Of the memory limit, for a process that makes rows. Half of it is what it may add to what it was
# forked with: a batch of texts and their encodings. The one that collects them has the rest.
PROCESS_BYTES = 1 << 30
GROWTH_BYTES = PROCESS_BYTES // 2
PIPE_BYTES = 1 << 20  # The most that the kernel grants; it holds about one part.
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Part:
    """What becomes of some rows. `chats`: what chats.Chats found in them."""

    train: Examples
    evaluation: Examples
    bad: BadRows
    rows: int = 0
    chats: tuple = ()
    stop_ids: frozenset = frozenset()


class Maker:
    """Makes Parts of sources' rows.

    held_out   numbers of the rows of the evaluation split
    numbers    {file: its number}
    seen       a function that is given each row and its example
    part_rows  rows of a part
    """

    def __init__(self, model, sources, options, **more):
        self._model, self._sources, self._options = model, sources, options
        self._held_out = more.get("held_out", frozenset())
        self._numbers, self._seen = more.get("numbers", {}), more.get("seen")
        self._part_rows = more.get("part_rows", PART_ROWS)
        self._chats = Chats(model, options)

    def parts(self, rows=0):
        """All of them, in order. `rows`: how many there are, as far as more than one process may
        make them."""
        memory = self._options.memory_bytes // PROCESS_BYTES - 1  # One collects.
        processes = min(rows // ROWS_PER_PROCESS, _cores(), memory, MAX_PROCESSES)
        if processes < 2:
            return map(self.make, self._slices())
        return self._forked_or_alone(processes)

    def make(self, items):
        """The Part of [(number, source, record, times)]."""
        part = Part(*(Examples(Checks(self._model, self._options)) for _ in range(2)), BadRows())
        part.rows = len(items)
        places = {}  # Of a record: its number and how often it is taken.

        def rows():
            for number, source, record, times in items:
                try:
                    row = source.reader.read(record)
                except PrepareError as error:
                    part.bad.add(error)
                    continue
                places[id(row)] = number, times
                yield row

        examples = tokenise.tokenise(self._model, self._chats, rows(), self._options, part.bad.add)
        for row, example in examples:
            number, times = places.pop(id(row))
            if self._seen:
                self._seen(row, example)
            file = self._numbers.get(row.file, 0)
            if number in self._held_out:
                example.original = None  # Images are evaluated as they are.
                part.evaluation.add(example, row, file=file)
            else:
                part.train.add(example, row, times, file)
        part.chats, part.stop_ids = self._chats.take(), frozenset(self._model.stop_ids)
        return part

    def _slices(self):
        numbers = itertools.count()
        taken = (
            (next(numbers), source, record, times)
            for source in self._sources
            for record, times in source.taken()
        )
        while items := list(itertools.islice(taken, self._part_rows)):
            yield items

    def _forked_or_alone(self, processes):
        """What is too much for one of several may not be for one that has all the memory."""
        done = 0
        try:
            for part in self._forked(processes):
                yield part
                done += 1
        except MemoryError:
            print(f"note: one process goes on from part {done}, with more memory", file=sys.stderr)
            yield from map(self.make, itertools.islice(self._slices(), done, None))

    def _forked(self, processes):
        context = multiprocessing.get_context("fork")
        with tempfile.TemporaryFile() as lock:
            before = self._options.one_at_a_time
            self._options.one_at_a_time = _Lock(lock)
            workers = []
            _limit_memory(self._options.memory_bytes - processes * GROWTH_BYTES)
            for index in range(processes):
                mine, theirs = context.Pipe(duplex=False)
                with contextlib.suppress(PermissionError):  # Its user has many pipes.
                    fcntl.fcntl(mine.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
                arguments = (theirs, index, processes)
                worker = context.Process(target=self._work, args=arguments, daemon=True)
                worker.start()
                theirs.close()
                workers.append((worker, mine))
            try:
                yield from _in_order(workers)
            finally:
                for worker, mine in workers:
                    worker.kill()
                    worker.join()
                    mine.close()
                self._options.one_at_a_time = before
                _limit_memory(self._options.memory_bytes)

    def _work(self, pipe, index, processes):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        _limit_memory(min(_address_space() + GROWTH_BYTES, self._options.memory_bytes))
        try:
            for number, items in enumerate(self._slices()):
                if number % processes == index:
                    pipe.send(self.make(items))
            pipe.send(None)
        except MemoryError:
            pipe.send(MemoryError())
        except PrepareError as error:
            pipe.send(error)
        except Exception as error:
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


class _Lock:
    """What one of the processes may do at a time: a lock on a file that all have open."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        fcntl.lockf(self._file, fcntl.LOCK_UN)


def _in_order(workers):
    for worker, pipe in itertools.cycle(workers):
        try:
            found = pipe.recv()
        except EOFError:
            worker.join()
            if worker.exitcode == -signal.SIGABRT:  # The tokenizer, which found no memory.
                raise MemoryError from None
            raise RuntimeError(f"a process that makes rows ended with {worker.exitcode}") from None
        if found is None:
            return
        if isinstance(found, BaseException):
            raise found
        yield found


def _limit_memory(most):
    """All processes together stay within what one was given."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (min(most, hard), hard))


def _address_space():
    """Bytes that this process has of it."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _cores():
    return len(os.sched_getaffinity(0))
