#!/usr/bin/env python3
"""one_definition.py: no two files of the product define a type of the same full name.

The linker keeps one copy of what is inlined for both (a vector's destructor, say) and takes it for either: memory is then
read by the wrong layout, in whichever program has both, and no compiler says so.
"""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ('libgraph', 'libpasses', 'librun', 'tools', 'tests/support', 'tests/unit')
OPENS = re.compile(r'^(?:inline )?namespace\s*([\w:]*)\s*\{')
CLOSES = re.compile(r'^\}  // namespace')
TYPE = re.compile(r'^(?:struct|class|enum class|enum|union)\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;]*)?\{')


def types_of(path):
    spaces = []
    with open(path, encoding='utf-8') as file:
        for line in file:
            if opened := OPENS.match(line):
                spaces.append(opened[1])
            elif CLOSES.match(line) and spaces:
                spaces.pop()
            elif (found := TYPE.match(line)) and '' not in spaces:   # an unnamed namespace is one file's own
                yield '::'.join([*spaces, found[1]])


def main():
    places = collections.defaultdict(set)
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith(('.h', '.cc')):
                    path = os.path.join(folder, name)
                    for type_name in types_of(path):
                        places[type_name].add(os.path.relpath(path, ROOT))
    assert len(places) > 500, f'only {len(places)} types were found: the patterns above no longer fit the sources'
    twice = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    for name, files in sorted(twice.items()):
        print(f'{name} is defined in {" and ".join(files)}')
    print(f'{len(places)} types, {len(twice)} defined twice')
    return 1 if twice else 0


if __name__ == '__main__':
    sys.exit(main())
