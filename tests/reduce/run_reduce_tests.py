#!/usr/bin/env python3
"""run_reduce_tests.py --bin BIN [--large]: failures planted in generated jobs, shrunk by sg-reduce.

What is left has to be the planted nodes and nothing else, valid, on all ranks; flaky, slow, skipping and hanging commands; Ctrl-C.
"""

import argparse
import json
import os
import re
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import Cases  # noqa: E402

CASES = Cases()
case = CASES.add


class Bench:
    """The case's folder, the tools, and commands that ask about candidates."""

    def __init__(self, bin_folder):
        self.bin = os.path.abspath(bin_folder)

    def path(self, name):
        return os.path.abspath(name)

    def run(self, tool, *words, code=0, timeout=300):
        done = subprocess.run([os.path.join(self.bin, tool), *words], capture_output=True, timeout=timeout)
        assert done.returncode == code, f'{tool} {words}: exit {done.returncode}, not {code}: {done.stderr.decode()}'
        return done.stdout.decode(), done.stderr.decode()

    def job(self, nodes, seed, *words):
        path = self.path(f'job-{nodes}-{seed}.sg')
        self.run('make_job', '--nodes', str(nodes), '--seed', str(seed), *words, '-o', path)
        return path

    def graphs(self, path):
        """By program: (name, line, its arguments' makers) of each node of the main graph."""
        view = json.loads(self.run('sg-view', path, '--json')[0])
        return [program['graphs'][0] for program in view['programs']]

    def script(self, name, body):
        path = self.path(name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write('#!/bin/sh\n' + body)
        os.chmod(path, 0o755)
        return path

    def wants(self, labels):
        """A command that says yes while all of these nodes are there."""
        patterns = ' '.join(f"-e '^ *%{label}[ ,]'" for label in labels)
        names = f'"{self.bin}/sg-print" "$1" | grep -o {patterns} | tr -d " ,"'
        found = f'test "$({names} | sort -u | wc -l)" -eq {len(labels)}\n'
        return self.script('wants.sh', found)


def plain_labels(graph):
    return [n for n, label in enumerate(graph['label']) if label.isascii() and label.isidentifier() and graph['line'][n].startswith('%' + label + ' =')]


def chain(graph, length, seed):
    """Nodes that take from each other, by label."""
    choice, plain = random.Random(seed), set(plain_labels(graph))
    for start in choice.sample(sorted(plain), len(plain)):
        nodes = [start]
        while len(nodes) < length:
            makers = [m for m in graph['args'][graph['arg_begin'][nodes[-1]]:graph['arg_begin'][nodes[-1] + 1]] if m in plain]
            if not makers:
                break
            nodes.append(choice.choice(makers))
        if len(nodes) == length:
            return [graph['label'][n] for n in nodes]
    raise AssertionError('the job has no such chain')


@case
def planted_nodes_are_all_that_is_left(bench):
    for seed in (3, 4, 5):
        job, small = bench.job(600, seed), bench.path('small.sg')
        graph = bench.graphs(job)[0]
        wanted = chain(graph, 3, seed)
        said = bench.run('sg-reduce', job, '--fails', bench.wants(wanted), '-o', small, '-j', '2')[1]
        assert f'-> {len(wanted)} nodes' in said, said
        for left in bench.graphs(small):
            assert set(left['label']) <= set(wanted), (left['label'], wanted)
        bench.run('sg-check', small)


PIPELINE = """sg 1.0 world 3
group @first [0 1]
group @second [1 2]

graph rank 0
  input %x : f32[4]

  %y = aten.sin(%x) : f32[4]
  %put = _c10d_functional.all_to_all_single(%y, [0, 0], [0, 4], @first) : f32[0]
  %sent = _c10d_functional.wait_tensor(%put) : f32[0]

graph rank 1
  input %none : f32[0]

  %got = _c10d_functional.all_to_all_single(%none, [4, 0], [0, 0], @first) : f32[4]
  %had = _c10d_functional.wait_tensor(%got) : f32[4]
  %y = aten.cos(%had) : f32[4]
  %put = _c10d_functional.all_to_all_single(%y, [0, 0], [0, 4], @second) : f32[0]
  %sent = _c10d_functional.wait_tensor(%put) : f32[0]

graph rank 2
  input %none : f32[0]

  %fetched = _c10d_functional.all_to_all_single(%none, [4, 0], [0, 0], @second) : f32[4]
  %here = _c10d_functional.wait_tensor(%fetched) : f32[4]
  %y = aten.exp(%here) : f32[4]

  output %y
"""


def pipeline(bench):
    with open(bench.path('pipeline.txt'), 'w', encoding='utf-8') as file:
        file.write(PIPELINE)
    return bench.path('pipeline.txt')


@case
def a_message_goes_at_both_ends(bench):
    """The ends of a message have names of their own; taken away one by one they leave a job that hangs."""
    small = bench.path('small.sg')
    has_cosine = bench.script('cosine.sh', f'"{bench.bin}/sg-print" "$1" | grep -q aten.cos\n')
    said = bench.run('sg-reduce', pipeline(bench), '--fails', has_cosine, '-o', small)[1]
    assert '-> 1 node, 3 -> 1 rank;' in said, said
    assert len(bench.graphs(small)) == 1
    bench.run('sg-check', small)
    bench.run('sg-run', '-q', '--init', 'seed:0', small)


@case
def a_message_that_is_wanted_keeps_both_ends(bench):
    small = bench.path('small.sg')
    sends = bench.script('sends.sh', f'"{bench.bin}/sg-print" "$1" | grep -q "@second)"\n')
    said = bench.run('sg-reduce', pipeline(bench), '--fails', sends, '-o', small)[1]
    assert '-> 2 nodes, 3 -> 2 ranks;' in said, said
    assert [graph['label'] for graph in bench.graphs(small)] == [['put'], ['fetched']]
    assert '@first' not in bench.run('sg-print', small)[0], 'a group that nobody names'
    bench.run('sg-check', small)
    bench.run('sg-run', '-q', '--init', 'seed:0', small)


@case
def the_candidate_is_named_in_a_pipe(bench):
    graph = bench.path('step.txt')
    with open(graph, 'w', encoding='utf-8') as file:
        file.write('sg 1.0 world 1\ngraph rank *\n  input %x : f32[4]\n'
                   '  %y = aten.relu(%x)\n  %z = aten.neg(%y)\n  output %z\n')
    small = bench.path('small.sg')
    said = bench.run('sg-reduce', graph, '--fails', f'"{bench.bin}/sg-print" {{}} | grep -q aten.neg', '-o', small)[1]
    assert '2 -> 1 node' in said, said
    said = bench.run('sg-reduce', graph, '--fails', 'test -e {}', '-o', small)[1]
    assert 'a graph of no nodes' in said, said


@case
def ranks_stay_if_they_have_to(bench):
    small = bench.path('small.sg')
    has_cosine = bench.script('cosine.sh', f'"{bench.bin}/sg-print" "$1" | grep -q aten.cos\n')
    said = bench.run('sg-reduce', pipeline(bench), '--fails', has_cosine, '--keep-ranks', '-o', small)[1]
    assert '-> 1 node, 3 -> 3 ranks;' in said, said
    bench.run('sg-check', small)


@case
def a_collective_goes_on_with_fewer_ranks(bench):
    job, small = bench.path('sum.txt'), bench.path('small.sg')
    with open(job, 'w', encoding='utf-8') as file:
        file.write('sg 1.0 world 8\nmesh [dp 8]\ngroup @dp [0 1 2 3 4 5 6 7]\n\ngraph rank *\n  input %x : f32[4]\n\n'
                   '  %y = aten.sin(%x) : f32[4]\n  %sum = _c10d_functional.all_reduce(%y, "sum", @dp) : f32[4]\n'
                   '  %all = _c10d_functional.wait_tensor(%sum) : f32[4]\n\n  output %all\n')
    sums = bench.script('sums.sh', f'"{bench.bin}/sg-print" "$1" | grep -q "_reduce(.*@dp"\n')
    said = bench.run('sg-reduce', job, '--fails', sums, '-o', small)[1]
    assert '-> 1 node, 8 -> 1 rank;' in said, said
    two = bench.script('two.sh', f'"{bench.bin}/sg-print" "$1" | grep -q "^group @dp .*[1-9]]" && {sums} "$1"\n')
    said = bench.run('sg-reduce', job, '--fails', two, '-o', small)[1]
    assert '-> 1 node, 8 -> 2 ranks;' in said, said
    bench.run('sg-run', '-q', '--init', 'seed:0', small)


@case
def a_signal_is_a_failure(bench):
    job, small = bench.job(30, 3), bench.path('small.sg')
    crash = 'exec ' + bench.script('crash.sh', 'kill -SEGV $$\n')
    bench.run('sg-reduce', job, '--interesting-if', 'fail', '--fails', crash, '-o', small)
    assert len(bench.graphs(small)[0]['label']) <= 1


@case
def sizes_that_only_the_data_decides_can_go(bench):
    job, small = bench.job(400, 11), bench.path('small.sg')
    graph = bench.graphs(job)[0]
    wanted = [graph['label'][max(plain_labels(graph))]]
    bench.run('sg-reduce', job, '--fails', bench.wants(wanted), '-o', small)
    assert all(set(left['label']) <= set(wanted) for left in bench.graphs(small))


@case
def one_thread_and_several_agree_on_the_failure(bench):
    job = bench.job(300, 21)
    command = bench.wants(chain(bench.graphs(job)[0], 2, 1))
    for threads in ('1', '4'):
        small = bench.path(f'small-{threads}.sg')
        bench.run('sg-reduce', job, '--fails', command, '-o', small, '-j', threads)
        subprocess.run([command, small], check=True)
    again = bench.path('again.sg')
    bench.run('sg-reduce', job, '--fails', command, '-o', again, '-j', '4')
    assert open(again, 'rb').read() == open(bench.path('small-4.sg'), 'rb').read()


@case
def a_flaky_failure_is_asked_about_more_often(bench):
    job, small, count = bench.job(120, 31), bench.path('small.sg'), bench.path('count')
    wanted = bench.wants([chain(bench.graphs(job)[0], 1, 1)[0]])
    flaky = bench.script('flaky.sh', f'echo x >> {count}\ntest $(($(wc -l < {count}) % 3)) -ne 1 || exit 1\nexec {wanted} "$1"\n')
    said = bench.run('sg-reduce', job, '--fails', flaky, '-o', small, '-j', '1')[1]
    assert 'the failure showed in 2 of 3 runs' in said and '-> 1 node' in said, said
    rare = bench.script('rare.sh', f'echo x >> {count}\ntest $(($(wc -l < {count}) % 7)) -eq 6 || exit 1\nexec {wanted} "$1"\n')
    os.remove(count)
    said = bench.run('sg-reduce', job, '--fails', rare, '-o', small, '-j', '1', '--attempts', '7')[1]
    assert 'runs: each' not in said and '-> 1 node' in said, said


@case
def skipped_and_hanging_candidates_are_no_failures(bench):
    job, small = bench.job(60, 41), bench.path('small.sg')
    keep = chain(bench.graphs(job)[0], 2, 1)
    wants = bench.wants(keep)
    skips = bench.script('skips.sh', f'{wants} "$1" || exit 125\n')
    assert 'skipped' in bench.run('sg-reduce', job, '--fails', skips, '-o', small)[1]
    hangs = bench.script('hangs.sh', f'{wants} "$1" || sleep 1000\n')
    small_job = bench.path('small-job.sg')
    bench.run('sg-reduce', job, '--fails', wants, '--keep-metadata', '-o', small_job)
    bench.run('sg-reduce', small_job, '--fails', hangs, '--timeout', '1', '-o', small)


@case
def what_is_interesting_may_be_a_failure_or_a_line(bench):
    job, small = bench.job(60, 61), bench.path('small.sg')
    wants = bench.wants(chain(bench.graphs(job)[0], 2, 1))
    reduced = {}
    for interest, body in {'pass': f'{wants} "$1"', 'fail': f'! {wants} "$1"',
                           'regex:^found [ab]$': f'{wants} "$1" && echo found b || echo nothing'}.items():
        command = bench.script('asks.sh', body + '\n')
        bench.run('sg-reduce', job, '--fails', command, '--interesting-if', interest, '-o', small)
        with open(small, 'rb') as file:
            reduced[interest] = file.read()
    assert len(set(reduced.values())) == 1, {k: len(v) for k, v in reduced.items()}
    bench.run('sg-reduce', job, '--fails', 'true', '--interesting-if', 'regex:(', code=2)
    assert 'pass, fail or regex:RE' in bench.run('sg-reduce', job, '--fails', 'true', '--interesting-if', 'no', code=2)[1]


@case
def long_lines_are_searched_in_time(bench):
    """Expressions that trial and error takes for ever for, and back-references, which want it: --timeout ends those."""
    job, small = bench.job(20, 63), bench.path('small.sg')
    long = bench.script('long.sh', "head -c 100000 /dev/zero | tr '\\0' a\n")
    found = bench.script('found.sh', "head -c 100000 /dev/zero | tr '\\0' a; echo bc\n")
    for expression in '(a+)+b', '(a*)*$b', 'a.*a.*a.*a.*b', '(' * 1000 + 'b' + ')' * 1000:
        said = bench.run('sg-reduce', job, '--fails', long, '--interesting-if', 'regex:' + expression, '--timeout', '50',
                         '-o', small, code=1)[1]
        assert 'nothing to reduce' in said, said[:500]
    for expression in '(a+)+bc', 'a{20}b', '^a+bc$':
        bench.run('sg-reduce', job, '--fails', found, '--interesting-if', 'regex:' + expression, '--dry-run')
    for expression in r'(a*)*\1b', '((a?){30}){30}b':
        said = bench.run('sg-reduce', job, '--fails', long, '--interesting-if', 'regex:' + expression, '--timeout', '1', code=1)[1]
        assert 'does not end within 1 s' in said, said[:500]
    bench.run('sg-reduce', job, '--fails', long, '--interesting-if', r'regex:(a)\1', '--dry-run')
    for expression in 'a)|(b', '((a{999}){999}){999}', 'a' * 5000:
        said = bench.run('sg-reduce', job, '--fails', long, '--interesting-if', 'regex:' + expression, code=2)[1]
        assert 'is no regular expression' in said, said[:500]


@case
def a_dry_run_asks_and_stops(bench):
    job, small = bench.job(20, 62), bench.path('dry.sg')
    said = bench.run('sg-reduce', job, '--fails', 'true', '--dry-run', '-o', small)[1]
    assert re.search(r'would reduce \d+ nodes', said) and not os.path.exists(small), said


@case
def refusals(bench):
    job = bench.job(20, 51)
    assert 'nothing to reduce' in bench.run('sg-reduce', job, '--fails', 'false', '-o', bench.path('x.sg'), code=1)[1]
    hangs = bench.run('sg-reduce', job, '--fails', 'sleep 60 #', '--timeout', '1', '-o', bench.path('x.sg'), code=1)[1]
    assert 'does not end within 1 s on the whole job' in hangs and '--timeout gives it more' in hangs, hangs
    assert 'it exits 125' in bench.run('sg-reduce', job, '--fails', 'exit 125 #', '-o', bench.path('x.sg'), code=1)[1]
    assert not os.path.exists(bench.path('x.sg'))
    assert 'cannot run' in bench.run('sg-reduce', job, '--fails', 'no-such-command', code=2)[1]
    assert '--fails' in bench.run('sg-reduce', job, '-o', bench.path('x.sg'), code=2)[1]
    assert 'at least 1' in bench.run('sg-reduce', job, '--fails', 'touch asked #', '--attempts', '0', code=2)[1] and not os.path.exists('asked')
    bench.run('sg-reduce', bench.path('none.sg'), '--fails', 'true', code=3)


@case
def control_c_keeps_the_best(bench):
    job, small = bench.job(300, 61), bench.path('small.sg')
    wants = bench.wants(chain(bench.graphs(job)[0], 2, 1))
    slow = bench.script('slow.sh', f'sleep 0.4\n{wants} "$1"\n')
    running = subprocess.Popen([os.path.join(bench.bin, 'sg-reduce'), job, '--fails', slow, '-v', '-o', small, '-j', '1'],
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    for line in running.stderr:
        if 'smaller' in line:
            break
    running.send_signal(signal.SIGINT)
    said = running.stderr.read()
    assert running.wait(60) == 130 and 'the best so far is kept' in said, said
    subprocess.run([wants, small], check=True)
    assert len(bench.graphs(small)[0]['label']) < 300
    time.sleep(0.2)
    left = subprocess.run(['pgrep', '-f', slow], capture_output=True, text=True)
    assert left.stdout == '', 'a command outlived the search'


@case
def what_is_stopped_too_early_writes_nothing(bench):
    """A command that the tool itself has killed says nothing about the job."""
    job, small = bench.job(20, 61), bench.path('small.sg')
    for number, before, said in ((signal.SIGINT, 0, 'before the search began'), (signal.SIGTERM, 3, 'before anything smaller was found')):
        asked = bench.path('asked')
        slow = bench.script('slow.sh', f'echo >> {asked}\n[ $(wc -l < {asked}) -le {before} ] || sleep 30\n')
        running = subprocess.Popen([os.path.join(bench.bin, 'sg-reduce'), job, '--fails', slow, '-o', small, '-j', '1'],
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not os.path.exists(asked) or len(open(asked).read()) <= before:
            time.sleep(0.02)
        running.send_signal(number)
        told = running.communicate(timeout=60)[1]
        assert running.returncode == 128 + number and said in told and told.count('\n') == 1, told
        assert not os.path.exists(small)
        os.remove(asked)


@case
def what_the_caller_ignores_ends_nothing(bench):
    """nohup: a terminal that is closed is no reason to stop."""
    job, small = bench.job(40, 61), bench.path('small.sg')
    wants = bench.wants(chain(bench.graphs(job)[0], 2, 1))
    slow = bench.script('slow.sh', f'sleep 0.05\n{wants} "$1"\n')
    running = subprocess.Popen([os.path.join(bench.bin, 'sg-reduce'), job, '--fails', slow, '-v', '-o', small, '-j', '1'],
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    for line in running.stderr:
        if 'smaller' in line:
            break
    running.send_signal(signal.SIGHUP)
    said = running.stderr.read()
    assert running.wait(60) == 0 and 'the best so far' not in said, said


def large(bench):
    """15,000 nodes: what it takes, printed."""
    job, small = bench.job(15000, 7), bench.path('small.sg')
    wanted = chain(bench.graphs(job)[0], 4, 7)
    begin = time.monotonic()
    said = bench.run('sg-reduce', job, '--fails', bench.wants(wanted), '-o', small, '-j', '2', timeout=1200)[1]
    print(f'15,000 nodes in {time.monotonic() - begin:.1f} s (target 60): {said.strip().splitlines()[-1]}')
    assert all(set(left['label']) <= set(wanted) for left in bench.graphs(small))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--bin', required=True)
    parser.add_argument('--large', action='store_true', help='15,000 nodes instead of the cases')
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    if options.large:
        CASES.list = [large]
    return CASES.run(options.names, given=(Bench(options.bin),))


if __name__ == '__main__':
    sys.exit(main())
