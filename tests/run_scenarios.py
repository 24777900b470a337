#!/usr/bin/env python3
"""run_scenarios.py: every scenario that scenarios.txt names is a test here, under that name.

Goldens must exist, with a command and an expected part; cases of the capture package must be methods that assert something.
Where ../shared/reference is at hand, every name of the inventory's tables must be in the list.
"""
import ast
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
INVENTORY = os.path.normpath(os.path.join(HERE, '..', '..', 'shared', 'reference', 'torchtitan-passes.md'))
WHOLE_TABLES = ('11.1', '11.2', '11.3', '11.4', '11.5', '11.6', '11.7')


def scenarios():
    for line in open(os.path.join(HERE, 'scenarios.txt')):
        if line.strip() and not line.startswith('#'):
            yield line.split(maxsplit=2)


def methods_of(path):
    """Names of test methods that assert something, themselves or by a method of their class that they call."""
    found = set()
    for function in ast.walk(ast.parse(open(path).read())):
        if isinstance(function, ast.FunctionDef) and function.name.startswith('test_'):
            called = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
            if any(re.match(r'assert|refused$|imported$', name) for name in called):
                found.add(function.name)
    return found


def finding(name, place):
    """What is wrong with a row, or None."""
    if place.startswith('none: '):
        return None
    folder, _, rest = place.strip().partition('/')
    if folder == 'script':
        path, _, function = rest.partition('#')
        path = os.path.join(HERE, path)
        is_there = os.path.exists(path) and f'def {function}(' in open(path).read()
        return None if is_there else f'there is no {place}'
    if folder == 'golden':
        if '/' in rest:
            rest, name = rest.split('/')
        path = os.path.join(HERE, 'golden', rest, name + '.txt')
        if not os.path.exists(path):
            return f'there is no {os.path.relpath(path, HERE)}'
        text = open(path).read()
        is_golden = text.startswith('# RUN: ') and '---- expected ----' in text
        return None if is_golden else f'{os.path.relpath(path, HERE)} is no golden'
    path = os.path.join(HERE, 'capture', rest + '.py')
    if folder != 'capture' or not os.path.exists(path):
        return f'there is no {place}'
    return None if 'test_' + name in methods_of(path) else f'{place} has no test_{name} that asserts anything'


def listed_in_inventory(section):
    """The words of the names in a table; they are abbreviated there: 'partial_slice_start / end / step _preserved'."""
    text = open(INVENTORY).read()
    table = text[text.index(f'### {section} '):]
    table = table[:table.index('\n### ')]
    if '| test' not in table:  # a list
        yield from re.findall(r'\w+_\w+', table[table.index('\n'):])
    for row in re.findall(r'^\| ([^|]*) \|', table, re.M):
        if row not in ('test', '---'):
            yield from (word for word in re.findall(r'\w+', row) if '_' in word or section < '11.4')


def main():
    rows, failed = list(scenarios()), 0
    names = {}
    for section, name, place in rows:
        names.setdefault(section, set()).add(name)
        if wrong := finding(name, place):
            failed += 1
            print(f'FAIL {section} {name}: {wrong}')
    if len({(section, name) for section, name, _ in rows}) != len(rows):
        failed += 1
        print('FAIL a name is listed twice')
    if os.path.exists(INVENTORY):
        for section in WHOLE_TABLES:
            for word in listed_in_inventory(section):
                if not any(word in name for name in names.get(section, ())):
                    failed += 1
                    print(f'FAIL {section}: {word} of the inventory is not listed')
    else:
        print('SKIPPED: the inventory is not at hand; the list was not held against it')
    print(f'{len(rows)} scenarios, {failed} failed')
    return 1 if failed or not rows else 0


if __name__ == '__main__':
    sys.exit(main())
