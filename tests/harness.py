"""What the runners in Python share: commands, tools and files, checks that are counted, cases in folders of their own,
skips.

Exit codes  0 all held, 1 something failed or nothing ran, 77 skipped (SKIPS of sg_python_test in tests/CMakeLists.txt).
Import      runners lie in folders beside this file: sys.path.insert(0, os.path.dirname(HERE))
"""
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

SKIPPED = 77
TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
TRACES = os.environ.get('SG_TRACES') or os.path.join(os.path.dirname(ROOT), 'shared', 'traces')


class Failure(Exception):
    """What was to hold does not: told with the name of its check, and the next one runs."""


def _ends(text):
    """The beginning, where a process that died may have said why, and the end."""
    text = text if isinstance(text, str) else (text or b'').decode(errors='replace')
    return text if len(text) <= 4000 else f'{text[:2000]}\n[...]\n{text[-2000:]}'


def run(*command, ok=(0,), text=True, **more):
    """The finished process. A Failure where it ends with another code than those of `ok`."""
    done = subprocess.run(command, capture_output=True, text=text, **more)
    if done.returncode not in ok:
        words = ' '.join(map(str, command))
        raise Failure(f'{words}\nexit {done.returncode}\n{_ends(done.stderr)}{_ends(done.stdout)}')
    return done


@functools.cache
def is_sanitized(program):
    """Whether it is of a build under ASan or TSan, whose memory tells nothing."""
    with open(program, 'rb') as file:
        text = file.read()
    return b'__asan_init' in text or b'__tsan_init' in text


@functools.cache
def python_with(*modules):
    """A Python that has them: STEPGRAPH_PYTHON, this one, a .venv or venv in the repository or beside it, that of the path;
    None where none of these has."""
    beside = [os.path.join(folder, name, 'bin', 'python')
              for folder in (ROOT, os.path.dirname(ROOT)) for name in ('.venv', 'venv')]
    for python in filter(None, [os.environ.get('STEPGRAPH_PYTHON'), sys.executable, *beside, shutil.which('python3')]):
        with contextlib.suppress(OSError):
            if subprocess.run([python, '-c', f'import {", ".join(modules)}'], capture_output=True).returncode == 0:
                return python
    return None


def skip(why):
    """Said aloud; to be returned by main."""
    print(f'SKIPPED: {why}', flush=True)
    return SKIPPED


class Workbench:
    """The tools of a build, and a folder for files."""

    def __init__(self, bin_dir, folder):
        self.bin, self.folder = bin_dir, folder

    def tool(self, name):
        return os.path.join(self.bin, name)

    def file(self, name):
        return os.path.join(self.folder, name)


class Tally:
    """Checks by name, counted; what they raise besides Failure, and still is a finding, is in `also`."""

    def __init__(self, *also):
        self.findings, self.passed, self.failed, self.began = (Failure, *also), 0, 0, time.time()

    def hold(self, name, check, *words):
        """What the check returns; None where it failed."""
        try:
            found = check(*words)
        except self.findings as failure:
            self.fail(f'{name}: {failure}')
            return None
        self.passed += 1
        return found

    def say_held(self, name, check, *words):
        """The same, and says so. True where it held."""
        began, failed = time.time(), self.failed
        self.hold(name, check, *words)
        if self.failed == failed:
            print(f'ok     {name}  {time.time() - began:.1f} s', flush=True)
        return self.failed == failed

    def fail(self, text):
        self.failed += 1
        print(f'FAILED {text}', flush=True)

    def finish(self, text=''):
        """The last line, and the exit code."""
        print(f'{text or f"{self.passed} passed"}, {self.failed} failed, {time.time() - self.began:.0f} s')
        return 1 if self.failed or not self.passed else 0


class Cases:
    """Functions marked with @add. Each runs in an empty folder, which is the current one meanwhile."""

    def __init__(self):
        self.list = []

    def add(self, function):
        self.list.append(function)
        return function

    def run(self, names=(), given=()):
        """Those whose names contain one of `names` (none: all), each with `given`. Returns the exit code."""
        tally = Tally()
        for function in self.list:
            if not names or any(name in function.__name__ for name in names):
                self._run_one(function, given, tally)
        return tally.finish()

    @staticmethod
    def _run_one(function, given, tally):
        home, began = os.getcwd(), time.time()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                function(*given)
                tally.passed += 1
                print(f'ok     {function.__name__}  {time.time() - began:.1f} s', flush=True)
            except Exception:  # a failed expectation, or a crash of the test: both are told, and the next case runs
                tally.fail(function.__name__)
                traceback.print_exc(limit=-3, file=sys.stdout)
            finally:
                os.chdir(home)
