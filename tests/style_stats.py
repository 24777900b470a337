#!/usr/bin/env python3
"""House-style indicators a folder: style_stats.py DIR...  Reports, never fails (functions need universal-ctags).

Columns: files, lines; code lines a file (p50, p90); lines a function (p50, p90, share over 60); share of comment lines;
upward includes (libgraph including tools, and so on).
"""
import os
import re
import shutil
import subprocess
import sys

EXTENSIONS = ('.cc', '.h')
LAYERS = ['schema', 'libgraph', 'libpasses', 'librun', 'tools']


def sources(root):
    found = (os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs if f.endswith(EXTENSIONS))
    return sorted(found)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0


def function_lengths(files):
    if not shutil.which('ctags'):
        return []
    command = ['ctags', '--languages=C++', '--langmap=C++:.cc.h', '--kinds-C++=f', '--fields=+ne', '--sort=no', '-L', '-', '-o', '-']
    out = subprocess.run(command, input='\n'.join(files), text=True, capture_output=True).stdout
    return [int(end) - int(start) + 1 for start, end in re.findall(r'\tline:(\d+).*?\tend:(\d+)', out)]


def upward_includes(root, files):
    layer = LAYERS.index(root) if root in LAYERS else len(LAYERS)
    includes = [i for f in files for i in re.findall(r'^#include "(\w+)/', open(f).read(), re.M)]
    return sum(1 for i in includes if i in LAYERS and LAYERS.index(i) > layer)


def main():
    print('folder       files  lines | file p50  p90 |  fns p50 p90  >60 | comments | upward includes')
    for root in sys.argv[1:]:
        files = sources(root)
        lines = {f: open(f, errors='replace').read().splitlines() for f in files}
        lengths = function_lengths(files)
        total = sum(map(len, lines.values()))
        comments = sum(1 for text in lines.values() for line in text if line.strip().startswith('//'))
        sizes = [len(text) for text in lines.values()]
        print(f'{root:12} {len(files):5} {total:6} | {quantile(sizes, .5):8} {quantile(sizes, .9):4} | {len(lengths):4} '
              f'{quantile(lengths, .5):3} {quantile(lengths, .9):3} {100 * sum(n > 60 for n in lengths) / max(1, len(lengths)):3.0f}% | '
              f'{100 * comments / max(1, total):7.1f}% | {upward_includes(root, files)}')


if __name__ == '__main__':
    main()
