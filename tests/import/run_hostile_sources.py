#!/usr/bin/env python3
"""Sources that somebody damaged or made up, each kind by each hostility: no crash, no hang, one clear line with its place.

run_hostile_sources.py --bin BIN [--only KIND|HOSTILITY] [--edits N] [--seed N] [--list]

Each source goes to sg-import (safetensors: to sg-run, as inputs) within MEMORY_BYTES and SECONDS. What is no source ends with
exit 3 and one line that names the file and says what is wrong where; nothing is written then. --edits: truncations and bit flips
of each kind, so many of each. --list prints the table: what each cell is tested by, or why there is nothing to test.
"""
import argparse
import fnmatch
import gzip
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from harness import Failure, Tally, is_sanitized  # noqa: E402
import hostile_sources as sources  # noqa: E402
import hostile_texts  # noqa: E402,F401

SECONDS, MEMORY_BYTES, LINE_CHARACTERS = 30, 3 << 30, 1500
STEP = 'sg 1.0 job "t" world 1\n\ngraph rank *\n  input %x : f32[4, 4] "x"\n\n  %y = aten.neg(%x)\n\n  output %y\n'
EXAMPLES = {'capture': ('tests', 'data', 'cli', 'step.json'), 'pt2': ('examples', '03_ways_in', 'step.pt2'),
            'trace': ('examples', '03_ways_in', 'step.trace.log'), 'fx': ('examples', '03_ways_in', 'step.fx.txt')}


def whole(kind):
    """A good source of that kind."""
    if kind == 'gz':
        return gzip.compress(whole('capture'))
    if kind == 'tlparse':
        return hostile_texts.folder(whole('fx').decode())
    if kind == 'safetensors':
        return sources.safetensors({'x': sources.stored()})
    return sources.read(*EXAMPLES[kind])


def damaged(kind, hostility, rng):
    """The whole source with one cut, or one to four bits changed."""
    good = whole(kind)
    data = bytearray(good[hostile_texts.GRAPH] if kind == 'tlparse' else good)
    if hostility == 'truncated':
        data = data[:rng.randrange(len(data) - 1)]        # not the line's end alone
    else:
        for _ in range(rng.randint(1, 4)):
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
    return {**good, hostile_texts.GRAPH: bytes(data)} if kind == 'tlparse' else bytes(data)


# A cut text may end behind a whole graph, and a cut log behind its graphs; what has a checksum or a length may not.
ALWAYS_REFUSED = {(kind, 'truncated') for kind in ('capture', 'gz', 'pt2', 'safetensors')}


def cases_of(kind, hostility, edits, seed):
    if hostility not in ('truncated', 'bit-flipped'):
        return sources.CASES.get((kind, hostility), [])
    rng = random.Random(f'{seed} {kind} {hostility}')
    message = '.' if (kind, hostility) in ALWAYS_REFUSED else None
    return [(f'{i} of seed {seed}', damaged(kind, hostility, rng), message) for i in range(edits)]


def lay_out(source, name):
    """Writes it into the current folder."""
    if not isinstance(source, dict):
        with open(name, 'wb') as f:
            f.write(source)
        return
    for path, content in source.items():
        os.makedirs(os.path.dirname(f'{name}/{path}'), exist_ok=True)
        if callable(content):
            content(f'{name}/{path}')
            continue
        with open(f'{name}/{path}', 'wb') as f:
            f.write(content)


def bound_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def bound_for(tool):
    """Nothing under a sanitizer, whose shadow is larger than any bound."""
    return None if is_sanitized(tool) else bound_memory


def check(binary, kind, source, message):
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        name = 'source' + ('.gz' if kind == 'gz' else '')
        lay_out(source() if callable(source) else source, name)
        lay_out(STEP.encode(), 'step.sg.txt')
        command = ['sg-run', 'step.sg.txt', '--inputs', name, '-o'] if kind == 'safetensors' else ['sg-import', '-q', name, '-o']
        try:
            tool = os.path.join(binary, command[0])
            done = subprocess.run([tool, *command[1:], 'out'], capture_output=True, text=True, errors='replace', timeout=SECONDS,
                                  preexec_fn=bound_for(tool))
        except subprocess.TimeoutExpired:
            raise Failure(f'no end in {SECONDS} s') from None
        finally:
            os.chdir('/')
        said = done.stderr[:3000]
        errors = [line for line in done.stderr.splitlines() if re.search(r'(^|[ :])error: ', line)]
        if done.returncode == 0 and message is None:
            return
        if done.returncode != 3:
            raise Failure(f'exit {done.returncode}: {said}')
        # A graph that is read and not valid: a line a finding, and how many there are.
        count = re.search('error: not a valid graph: ([1-9]) finding', errors[-1]) if errors else None
        if len(errors) != (1 + int(count[1]) if count else 1) or max(map(len, errors)) > LINE_CHARACTERS:
            raise Failure(f'{len(errors)} errors, of {max(map(len, errors), default=0)} characters: {said}')
        if 'source' not in errors[0] or not re.search(message or '.', errors[0]):
            raise Failure(f'no /{message}/: {said}')


def print_table():
    for hostility in sources.HOSTILITIES:
        for kind in sources.KINDS:
            names = [name for name, _, _ in sources.CASES.get((kind, hostility), [])]
            if hostility in ('truncated', 'bit-flipped'):
                names = ['--edits of them']
            print(f'{hostility:20}{kind:12}{"; ".join(names) or "nothing: " + sources.NOTHING[kind, hostility]}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--only', default='*')
    parser.add_argument('--edits', type=int, default=12)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--list', action='store_true')
    args = parser.parse_args()
    if args.list:
        return print_table()
    warnings.simplefilter('ignore')                # of zipfile, where a name is to occur twice
    binary, tally = os.path.abspath(args.bin), Tally()
    for kind in sources.KINDS:
        for hostility in sources.HOSTILITIES:
            if not any(fnmatch.fnmatch(word, args.only) for word in (kind, hostility)):
                continue
            cases = cases_of(kind, hostility, args.edits, args.seed)
            if bool(cases) == ((kind, hostility) in sources.NOTHING):
                tally.fail(f'{kind}, {hostility}: no case and no reason why, or both')
            for name, source, message in cases:
                tally.hold(f'{kind}, {hostility}, {name}', check, binary, kind, source, message)
    return tally.finish()


if __name__ == '__main__':
    sys.exit(main())
