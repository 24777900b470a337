#!/usr/bin/env python3
"""run_import_tests.py --bin BIN [--torch models|traces]: FX text and TORCH_TRACE through sg-import.

Without --torch: the texts and the log among the shared captures. Each text gives the graph of the capture beside it, node by
node (compare_imports), is valid, counts the same (sg-stat) and, in f32, runs to PyTorch's results; the log runs to them as a
joint graph, as forward and backward joined, and as tlparse's output folder. Says SKIPPED aloud where the captures are absent.

With --torch: what PyTorch prints and logs now (fx_models.py, fx_traces.py); needs a Python with torch.
"""
import argparse
import glob
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import harness  # noqa: E402
from harness import Failure, TRACES, Tally, skip  # noqa: E402

VARIANTS = ('plain', 'strides', 'full', 'colored', 'expanded')


def run(*command, status=0):
    """All that was said."""
    done = harness.run(*command, ok=(status,), errors='replace')
    return done.stdout + done.stderr


def counts(tool, graph):
    # Text has no hints: what the data decides is the same number on both sides.
    symbols = sorted(set(re.findall(r'symbol (\w+)', run(tool('sg-print'), graph))))
    assume = [word for s in symbols for word in ('--assume', f'{s}=13')]
    stats = json.loads(run(tool('sg-stat'), graph, '--json', *assume))
    collectives = sorted((c['kind'], c['count'], c['bytes']) for c in stats['collectives'])
    return {**{k: stats[k] for k in ('nodes', 'inputs', 'outputs', 'ops', 'flops')}, 'collectives': collectives}


def check_shared_text(tool, text, folder):
    home = os.path.dirname(text)
    is_job = os.path.isdir(f'{home}/rank0')
    capture = f'{home}/rank0/step.json' if is_job else f'{home}/step.json'
    graph, other = f'{folder}/text.sg', f'{folder}/capture.sg'
    run(tool('compare_imports'), capture, text)
    run(tool('sg-import'), '-q', text, '-o', graph)
    run(tool('sg-import'), '-q', capture, '-o', other)
    run(tool('sg-check'), graph)
    # The text does not tell who is in a group that is smaller than the world.
    report = json.loads(run(tool('sg-diff'), '--json', '--no-cost', '--ignore', 'meta,name,loc', other, graph,
                            status='tp2' in home))
    edits = [e for p in report['programs'] for g in p['graphs'] for e in g['edits'] if 'explanation' not in e]
    if edits or {item['subject'] for item in report['items']} - {'world', 'group'}:
        raise Failure(f'sg-diff tells the text from the capture: {edits[:3]} {report["items"][:3]}')
    got, want = counts(tool, graph), counts(tool, other)
    for key in want:
        if got[key] != want[key]:
            raise Failure(f'sg-stat counts {key} {got[key]}, of the capture {want[key]}')
    # Low precision is held against PyTorch's errors in the test `numbers`; a group smaller than the world has unknown members.
    if ('fp32' in home or not is_job) and 'tp2' not in home:
        spmd = ['--spmd'] if is_job else []
        run(tool('sg-import'), '-q', *spmd, text, '-o', graph)
        values = f'{home}/rank{{r}}/' if is_job else f'{home}/'
        run(tool('sg-run'), '-q', graph, '--inputs', values + 'inputs.safetensors', '--expect',
            values + 'expected.safetensors')


def events_of(log):
    """(line, payload lines) of each event."""
    events = []
    with open(log) as f:
        for line in f:
            if line.startswith('\t'):
                events[-1][1].append(line)
            else:
                events.append((line, []))
    return events


def write_tlparse(events, folder):
    """As tlparse lays it out."""
    home = f'{folder}/tlparse/-_0_0_0'
    os.makedirs(home)
    with open(f'{folder}/tlparse/compile_directory.json', 'w') as f:
        f.write('{}')
    for i, (line, payload) in enumerate(events):
        name = next((k for k in json.loads(line[line.index('] {') + 2:]) if k.endswith('_graph')), None)
        if name:
            with open(f'{home}/{name}_{i}.txt', 'w') as f:
                f.writelines(p[1:] for p in payload)
    return f'{folder}/tlparse'


def check_shared_log(tool, home, folder):
    log = f'{home}/torch_trace.log'
    events = events_of(log)
    halves = f'{folder}/halves.log'
    with open(halves, 'w') as f:
        for line, payload in events:
            if '"aot_joint_graph"' not in line:
                f.write(line + ''.join(payload))
    for source in (log, halves, write_tlparse(events, folder)):
        graph = f'{folder}/trace.sg'
        run(tool('sg-import'), '-q', source, '-o', graph)
        run(tool('sg-run'), '-q', graph, '--inputs', f'{home}/inputs.safetensors', '--expect',
            f'{home}/expected.safetensors')
    # Newer versions of tlparse keep the log, which knows more than the graphs that are laid out.
    with open(f'{folder}/tlparse/raw.log', 'w') as f:
        f.write(open(log).read())
    listing = run(tool('sg-import'), '--list', log)
    if run(tool('sg-import'), '--list', f'{folder}/tlparse') != listing:
        raise Failure("the log in tlparse's output folder is not read")
    if '0/0  aot_backward_graph' not in listing:
        raise Failure(f'--list says: {listing}')
    run(tool('sg-import'), log, '--compile-id', '7/7', '-o', f'{folder}/no.sg', status=3)
    for rank in ('3', '4294967296'):
        run(tool('sg-import'), log, '--rank', rank, '-o', f'{folder}/no.sg', status=3)


def check_models(tool, folder):
    home = f'{folder}/models'
    run(sys.executable, f'{HERE}/fx_models.py', home)
    names = sorted(glob.glob(f'{home}/*.json'))
    if len(names) < 20:
        raise Failure(f'only {len(names)} graphs')
    texts = 0
    for capture in names:
        name = capture[:-len('.json')]
        written = [variant for variant in VARIANTS if os.path.exists(f'{name}.{variant}.txt')]
        if not set(VARIANTS) - set(written) <= {'expanded'}:   # which torch 2.6 does not print
            raise Failure(f'{name}: only {written}')
        texts += len(written)
        for variant in written:
            text, graph = f'{name}.{variant}.txt', f'{folder}/model.sg'
            with open(text) as f:
                if ' _tensor_constant0 = self.' in f.read():   # torch 2.6 prints constants without their types
                    skip(f'{os.path.basename(text)}: it does not say what its constants are')
                    continue
            run(tool('compare_imports'), capture, text, *([] if variant == 'plain' else ['--strides']))
            run(tool('sg-import'), '-q', text, '-o', graph)
            if os.path.exists(f'{name}.expected.safetensors'):
                run(tool('sg-run'), '-q', graph, '--inputs', f'{name}.inputs.safetensors', '--expect',
                    f'{name}.expected.safetensors')
    return texts


def check_drawing(tool, log, folder):
    """A joint graph draws by itself; Inductor's forward and backward draw by seeds that are values."""
    graph, halves = f'{folder}/drawn.sg', f'{folder}/halves.log'
    with open(halves, 'w') as f:
        for line, payload in events_of(log):
            if '"aot_joint_graph"' not in line:
                f.write(line + ''.join(payload))
    for source in (log, halves):
        run(tool('sg-import'), '-q', source, '-o', graph)
        run(tool('sg-check'), graph)
        if 'loss' not in run(tool('sg-run'), graph, '--init', 'seed:0'):
            raise Failure('no loss')


def check_ranks(tool, home, graph):
    """The folder of two processes' logs is a job of two ranks."""
    run(tool('sg-import'), '-q', f'{home}/log', '-o', graph)
    if '2 ranks' not in run(tool('sg-check'), graph):
        raise Failure('the logs of two processes are no job of two ranks')
    run(tool('sg-run'), '-q', graph, '--inputs', f'{home}/{{r}}/values.safetensors', '--expect', f'{home}/{{r}}/expected.safetensors')


def check_traces(tool, folder):
    run(sys.executable, f'{HERE}/fx_traces.py', f'{folder}/traces')
    done = 0
    for home in sorted(glob.glob(f'{folder}/traces/*')):
        logs, graph, name = glob.glob(f'{home}/log/*.log'), f'{folder}/trace.sg', os.path.basename(home)
        if logs and name == 'dropout-inductor':    # its numbers are not PyTorch's; joint, and as forward and backward
            check_drawing(tool, logs[0], folder)
            continue
        if logs and name == 'ranks-inductor' and os.path.exists(f'{home}/1/expected.safetensors'):
            check_ranks(tool, home, graph)
            done += 1
            continue
        if not logs or not os.path.exists(f'{home}/expected.safetensors'):
            print(f'SKIPPED: PyTorch could not make the trace {name} here')
            continue
        if name == 'break':                        # two halves of a step: one must choose
            said = run(tool('sg-import'), logs[0], '-o', graph, status=3)
            if '--compile-id' not in said or '0/0' not in said:
                raise Failure(said)
            run(tool('sg-import'), '-q', logs[0], '--compile-id', '0/0', '-o', graph)
            run(tool('sg-check'), graph)
            continue
        choice = ['--compile-id', '0/1'] if name == 'recompile' else []
        run(tool('sg-import'), '-q', logs[0], *choice, '-o', graph)
        run(tool('sg-check'), graph)
        if not name.endswith('dynamic'):                      # where a size is an input of its own
            run(tool('sg-run'), '-q', graph, '--init', 'seed:0')
        run(tool('sg-run'), '-q', graph, '--inputs', f'{home}/values.safetensors', '--expect', f'{home}/expected.safetensors')
        done += 1
    if done < 4:
        raise Failure(f'only {done} traces were made')
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', default='build/bin')
    parser.add_argument('--torch', choices=('models', 'traces'))
    args = parser.parse_args()
    if args.torch:
        sys.path.insert(0, os.path.join(HERE, '..', 'capture'))
        from interpreter import use_python_with_torch
        use_python_with_torch()

    def tool(name):
        here = os.path.join(args.bin, name)
        return here if os.path.exists(here) else os.path.join(args.bin, '..', 'tests', name)

    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        if args.torch:
            checks = [(args.torch,
                       lambda: check_models(tool, folder) if args.torch == 'models' else check_traces(tool, folder))]
        elif not os.path.isdir(TRACES):
            return skip('../shared/traces is absent')
        else:
            texts = sorted(glob.glob(f'{TRACES}/*/*/fx-readable.txt'))
            checks = [(os.path.relpath(t, TRACES), lambda t=t: check_shared_text(tool, t, folder)) for t in texts]
            log = f'{TRACES}/formats/llama-torch-trace'
            checks.append((os.path.relpath(log, TRACES), lambda: check_shared_log(tool, log, folder)))
        for name, check in checks:
            tally.say_held(name, check)
    return tally.finish()


if __name__ == '__main__':
    sys.exit(main())
