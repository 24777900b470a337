#!/usr/bin/env python3
"""run_autochunk_table.py --bin BIN: planned peaks of sg-chunk --auto, for each capture, and beside the published
figures of GPT-2 under AutoChunker.

Peaks are planned (bytes of `sg-run --plan`, rank 0, sizes of the capture), so they are the same on every machine.
The first table: captures as they are, untouched, at 8 chunks, and with as many as sg-chunk takes by itself. The
second: GPT-2 124M at 32 x 1024 tokens, bf16 autocast, behind `sg-clean | sg-remat --policy default`, at the
published numbers of chunks. Published is what the allocator handed out on a GPU for a step with its optimizer
(PyTorch's pull request 136702); what ours includes is listed. Fails when 8 chunks need more than 0.65 of the
untouched plan, or a row of ours is above the published one.
"""
import argparse
import json
import sys
import tempfile

from tables import Table, need_traces, run, size

SHAPES = ['gpt2-124m-b4t64', 'gpt2-124m-b32t1024-amp', 'llama3-1b-b2t8192-bf16', 'llama3-8b-b1t8192-bf16',
          'llama3-8b-fsdp8', 'dsv3-16b-ep32']
SINGLES = ['gpt2-tiny', 'gpt2-tiny-dropout', 'gpt2-tiny-dynamic', 'llama-hf-sdpa', 'mixtral', 'bert', 'llama3-1rank',
           'llama3-1rank-flex', 'dsv3-1rank']
HEAD = 'gpt2-124m-b32t1024-amp'
PUBLISHED = {8: 14049, 16: 13267, 32: 12880, 64: 12603}
MIB = 1 << 20
OPTIMIZER_STATES = 2          # AdamW keeps two tensors of each parameter's size


class AutochunkTable(Table):
    def __init__(self, bin_dir, folder):
        super().__init__(bin_dir, folder)
        self.failed = []

    def chunked(self, graph, *options):
        """The report of the pass, and the graph that came out."""
        out = self.file('out.sg')
        said = run(self.tool('sg-chunk'), graph, '--auto', *options, '--explain', '--json', '-o', out)
        return json.loads(said.stdout)['passes'][0], out

    def captures(self):
        lines = [f'{"capture":24} {"untouched":>10} {"8 chunks":>10} {"":>6} {"by itself":>10} {"":>6} chunks  flops']
        sources = [(n, f'shape/{n}/step', '.json.gz', []) for n in SHAPES]
        sources += [(n, f'single/{n}/step', '.json', ['--min-output', '1KiB']) for n in SINGLES]
        for name, source, ending, small in sources:
            graph = self.bring(source, 'in.sg', ending)
            before, flops = self.plan(graph)['peak_bytes'], self.stat(graph)['flops']
            _, out = self.chunked(graph, '--chunks', '8', *small)
            eight = self.plan(out)['peak_bytes']
            report, out = self.chunked(graph, *small)
            best = self.plan(out)['peak_bytes']
            counts = ' '.join(str(r['chunks']) for r in report['plan']['regions']) or '-'
            lines.append(f'{name:24} {size(before):>10} {size(eight):>10} {eight / before:6.3f} {size(best):>10} '
                         f'{best / before:6.3f} {counts:>6} {self.stat(out)["flops"] / flops:6.3f}')
            if name == HEAD and eight > 0.65 * before:
                self.failed.append(f'{name}: {eight / before:.4f} of the untouched plan at 8 chunks')
        return lines

    def published(self):
        graph, remat = self.bring(f'shape/{HEAD}/step', 'in.sg'), self.file('remat.sg')
        run(self.tool('sg-clean'), '-q', graph, '--in-place')
        run(self.tool('sg-remat'), '-q', graph, '--policy', 'default', '-o', remat)
        plan = self.plan(remat)
        lines = [f'{"chunks":>6} {"published":>10} {"ours":>8} {"planned":>8} {"inputs":>8} {"optimizer":>10} '
                 f'{"ours/published":>15}   MiB']
        for chunks in (None, *PUBLISHED):
            out = remat if chunks is None else self.chunked(remat, '--chunks', str(chunks))[1]
            plan = self.plan(out)
            states = OPTIMIZER_STATES * plan['parameters_bytes']
            total = plan['peak_bytes'] + plan['inputs_bytes'] + states
            theirs = PUBLISHED.get(chunks)
            ratio = f'{total / MIB / theirs:.3f}' if theirs else '-'
            lines.append(f'{chunks or "none":>6} {theirs or "-":>10} {total // MIB:>8} {plan["peak_bytes"] // MIB:>8} '
                         f'{plan["inputs_bytes"] // MIB:>8} {states // MIB:>10} {ratio:>15}')
            if theirs and total > theirs * MIB:
                self.failed.append(f'{chunks} chunks: {total // MIB} MiB, published are {theirs}')
        return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    args = parser.parse_args()
    need_traces()
    with tempfile.TemporaryDirectory() as folder:
        table = AutochunkTable(args.bin, folder)
        title = f'{HEAD} behind sg-clean | sg-remat --policy default'
        print('\n'.join([*table.captures(), '', title, *table.published()]))
    for line in table.failed:
        print('FAILED ' + line)
    return 1 if table.failed else 0


if __name__ == '__main__':
    sys.exit(main())
