#!/usr/bin/env python3
"""House-style indicators a folder: style_stats.py [--long] DIR...  Reports, never fails (functions need universal-ctags).

Columns: files, lines; code lines a file (p50, p90); lines a function (p50, p90, share over 60); share of comment lines;
lines over 120 columns; upward includes (libgraph including tools, and so on).
--long names the files over 400 lines, the functions over 80 and the lines over 120 columns instead.
"""
import os
import re
import shutil
import subprocess
import sys

EXTENSIONS = ('.cc', '.h')
WIDEST, LONGEST_FILE, LONGEST_FUNCTION = 120, 400, 80
LAYERS = ['schema', 'libgraph', 'libpasses', 'librun', 'tools']


def sources(root):
    found = (os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs if f.endswith(EXTENSIONS))
    return sorted(found)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0


def functions(files):
    """(lines, name, file) of each; of none without ctags."""
    if not shutil.which('ctags'):
        return []
    command = ['ctags', '--languages=C++', '--langmap=C++:.cc.h', '--kinds-C++=f', '--fields=+ne', '--sort=no', '-L',
               '-',
               '-o', '-']
    out = subprocess.run(command, input='\n'.join(files), text=True, capture_output=True).stdout
    found = re.findall(r'^([^\t\n]*)\t([^\t\n]*)\t.*?\tline:(\d+).*?\tend:(\d+)', out, re.M)
    return [(int(end) - int(start) + 1, name, file) for name, file, start, end in found]


def upward_includes(root, files):
    layer = LAYERS.index(root) if root in LAYERS else len(LAYERS)
    includes = [i for f in files for i in re.findall(r'^#include "(\w+)/', open(f).read(), re.M)]
    return sum(1 for i in includes if i in LAYERS and LAYERS.index(i) > layer)


def indicators(root, texts):
    lengths = [length for length, _, _ in functions(list(texts))]
    sizes = [len(text) for text in texts.values()]
    lines = [line for text in texts.values() for line in text]
    comments = sum(line.strip().startswith('//') for line in lines)
    wide = sum(len(line) > WIDEST for line in lines)
    return (f'{root:12} {len(texts):5} {len(lines):6} | {quantile(sizes, .5):8} {quantile(sizes, .9):4} | '
            f'{len(lengths):4} {quantile(lengths, .5):3} {quantile(lengths, .9):3} '
            f'{100 * sum(n > 60 for n in lengths) / max(1, len(lengths)):3.0f}% | '
            f'{100 * comments / max(1, len(lines)):7.1f}% | {wide:4} | {upward_includes(root, list(texts))}')


def long_ones(texts):
    for file, text in sorted(texts.items(), key=lambda item: -len(item[1])):
        if len(text) > LONGEST_FILE:
            yield f'{len(text):5} lines     {file}'
    for length, name, file in sorted(functions(list(texts)), reverse=True):
        if length > LONGEST_FUNCTION:
            yield f'{length:5} lines     {file}: {name}'
    for file, text in texts.items():
        yield from (f'{len(line):5} columns   {file}:{n}' for n, line in enumerate(text, 1) if len(line) > WIDEST)


def main():
    roots = [word for word in sys.argv[1:] if word != '--long']
    missing = [root for root in roots if not os.path.isdir(root)]
    if missing or not roots:
        sys.exit('style_stats.py: ' + (f'no such folder: {missing[0]}' if missing else 'which folder? [--long] DIR...'))
    if '--long' not in sys.argv:
        print('folder       files  lines | file p50  p90 |  fns p50 p90  >60 | comments | wide | upward includes')
    for root in roots:
        texts = {f: open(f, errors='replace').read().splitlines() for f in sources(root)}
        print('\n'.join(long_ones(texts)) if '--long' in sys.argv else indicators(root, texts))


if __name__ == '__main__':
    main()
