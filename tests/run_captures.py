#!/usr/bin/env python3
"""run_captures.py --bin BIN [--traces DIR]: every shared capture through the tools.

For each file: it imports and verifies; its counts are those of MANIFEST.tsv (getitems folded); every recorded type equals
the inferred one, or is a known fault of its recorder; binary -> text -> binary is byte-identical; sg-stat counts it;
its memory plan is at most 1.02 times what is live at once.
Rank sets are imported as one job too. Says SKIPPED aloud when the captures are absent.
"""
import argparse
import csv
import glob
import json
import os
import sys
import tempfile

from harness import Failure, TRACES, Tally, run, skip

MAX_PLAN_RATIO = 1.02


def check_round_trip(tool, graph, folder):
    text, again = os.path.join(folder, 'again.sg.txt'), os.path.join(folder, 'again.sg')
    run(tool('sg-print'), graph, '-o', text)
    run(tool('sg-parse'), '-q', text, '-o', again)
    if open(graph, 'rb').read() != open(again, 'rb').read():
        raise Failure('binary -> text -> binary is not byte-identical')


def check_counts(stats, row):
    wanted = {'nodes': int(row['nodes']) - int(row['of_them_getitem']), 'inputs': int(row['inputs']),
              'outputs': int(row['outputs'])}
    for key, count in wanted.items():
        if stats[key] != count:
            raise Failure(f'{key}: {stats[key]}, the manifest says {count}')


def check_plan(stats):
    for program in stats.get('ranks') or [stats]:
        memory = program['memory']
        if not memory['lower_bound_bytes'] <= memory['peak_bytes'] <= MAX_PLAN_RATIO * memory['lower_bound_bytes']:
            raise Failure(f'planned {memory["peak_bytes"]} bytes where at once live are {memory["lower_bound_bytes"]}')


def check_one(tool, source, row, folder):
    graph = os.path.join(folder, 'step.sg')
    run(tool('sg-import'), '-q', source, '-o', graph)
    run(tool('sg-import'), '-q', '--check', source)
    check_round_trip(tool, graph, folder)
    stats = json.loads(run(tool('sg-stat'), graph, '--json').stdout)
    check_plan(stats)
    if row is not None:
        check_counts(stats, row)
    if '{r}' in source:
        check_files_of_ranks(tool, source, graph, folder)


def check_files_of_ranks(tool, source, graph, folder):
    """One file a rank, read back as a rank set, is the job."""
    ranks = os.path.join(folder, os.path.basename(os.path.dirname(os.path.dirname(source))), 'rank{r}.sg')
    run(tool('sg-import'), '-q', source, '-o', ranks)
    if run(tool('sg-print'), ranks).stdout != run(tool('sg-print'), graph).stdout:
        raise Failure('the files of its ranks do not give the same text')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--traces', default=TRACES)
    options = parser.parse_args()
    if not os.path.isdir(options.traces):
        return skip(f'the shared captures ({options.traces}) are absent')
    rows = {r['file']: r for r in csv.DictReader(open(os.path.join(options.traces, 'MANIFEST.tsv')), delimiter='\t')}
    files = [f for f in glob.glob(os.path.join(options.traces, '**/*.json*'), recursive=True) if 'scalars' not in f]
    sets = [d + '/rank{r}/step.json' for d in glob.glob(os.path.join(options.traces, 'multi/*')) if os.path.isdir(d)]
    tool = lambda name: os.path.join(options.bin, name)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(files) + sorted(sets):
            name = os.path.relpath(source, options.traces)
            tally.hold(name, check_one, tool, source, rows.get(name), folder)
    return tally.finish()


if __name__ == '__main__':
    sys.exit(main())
