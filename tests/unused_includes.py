#!/usr/bin/env python3
"""unused_includes.py [DIR...]: no file includes a header of ours of which it names nothing.

No compiler is asked. What a header declares is read off its text: types, functions, constants and macros, and the members of
its types, which count where a file has them behind `.`, `->` or `::`. Too much is taken for declared rather than too little: it
misses some, and what it finds is true. An include that is needed all the same (for generated code, or a type that only has to
be complete) says so in a comment behind it.
"""
import functools
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ('libgraph', 'libpasses', 'librun', 'tools', 'tests')
INCLUDE = re.compile(r'^#include "([\w/.]+\.h)"(.*)$', re.M)
QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.\']*|->|::|&&|<<|[^\s\w]')
OPENS_TYPE = {'struct', 'class', 'union'}
KEYWORDS = OPENS_TYPE | set(
    'enum namespace using typedef template typename concept requires operator const constexpr consteval static inline extern '
    'friend virtual override final explicit mutable noexcept public private protected default delete return if else for while '
    'switch case do auto void bool char int long short unsigned signed float double true false nullptr this sizeof decltype '
    'std int64_t int32_t uint64_t uint32_t uint8_t uint16_t int8_t int16_t size_t sg'.split())
# Members of the standard library's types too: they show nothing.
COMMON = set(
    'size empty begin end data value clear front back push_back emplace_back find insert erase first second str c_str count '
    'reserve resize at get reset emplace what load store append contains substr has_value value_or wait join swap'.split())


def text_of(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def tokens_of(text):
    text = QUIET.sub(' ', text)
    return TOKEN.findall(re.sub(r'^\s*#\s*(?:include|pragma)\b[^\n]*', '', text, flags=re.M))


def end_of(tokens, i):
    """Behind the bracket that closes the one at i."""
    depth = 0
    while i < len(tokens):
        depth += tokens[i] in '({['
        depth -= tokens[i] in ')}]'
        i += 1
        if depth == 0:
            break
    return i


def headers_of(path):
    """(name, file, what is said behind it) of each header of ours that a file includes; generated ones have no file."""
    for name, said in INCLUDE.findall(text_of(path)):
        if os.path.exists(file := os.path.join(ROOT, name)):
            yield name, file, said.strip()


def macros_of(text):
    return set(re.findall(r'^\s*#\s*define\s+(\w+)', text, re.M))


@functools.lru_cache(None)
def own_names(path):
    """(names, members) that a file itself declares, macros among the names: more than it does, never fewer."""
    text = text_of(path)
    names = macros_of(text)
    members = set()
    tokens = tokens_of(re.sub(r'^\s*#(?:.*\\\n)*.*$', '', text, flags=re.M))
    inside = []   # of each open brace, whether it is a type's
    is_type = False
    i = 0
    while i < len(tokens):
        token, before, after = tokens[i], tokens[i - 1] if i else '', tokens[i + 1] if i + 1 < len(tokens) else ''
        if token == '(':
            i = end_of(tokens, i)
            continue
        if token == '{' and before in (')', 'const', 'noexcept', 'override', 'final') and not is_type:
            i = end_of(tokens, i)   # a function's body
            continue
        if token == '{':
            inside.append(is_type)
            is_type = False
        elif token == '}' and inside:
            inside.pop()
        elif token == ';':
            is_type = False
        elif token in OPENS_TYPE and before != 'enum' and before not in '<,':
            is_type = True
        elif re.match(r'[A-Za-z_]', token) and token not in KEYWORDS and before not in ('::', '.', '->'):
            is_named = before in ('struct', 'class', 'enum', 'union', 'using', 'concept')
            if is_named or after in ('(', ';', '=', '{', '[', ',', ':', '}', '<'):
                (members if any(inside) and not is_named else names).add(token)
        elif token == 'operator' and not any(inside):
            names.add(token)
        i += 1
    return names, members - COMMON


@functools.lru_cache(None)
def declared(path):
    """As own_names; of a header of headers, what these declare. None where a use can't be seen: of what a table declares,
    of operators, and of macros alone, which a header hands on with those of its own that need them."""
    if re.search(r'^#include ".*\.def"', text_of(path), re.M):
        return None
    names, members = own_names(path)
    if 'operator' in names or (names and not members and names == macros_of(text_of(path))):
        return None
    if names or members:
        return names, members
    parts = [declared(file) for _, file, _ in headers_of(path)]
    return tuple(set().union(*sets) for sets in zip(*parts)) if parts and all(parts) else None


@functools.lru_cache(None)
def used(path):
    tokens = tokens_of(text_of(path))
    return set(tokens), {t for before, t in zip(tokens, tokens[1:]) if before in ('.', '->', '::')}


def unused(path):
    stem = os.path.splitext(os.path.relpath(path, ROOT))[0]
    words, behind = used(path)
    if path.endswith('.h') and not any(own_names(path)):
        return   # a header of headers
    for name, file, said in headers_of(path):
        theirs = declared(file)
        is_own = os.path.splitext(name)[0] == stem
        if is_own or theirs is None or said.startswith('//'):
            continue
        if not words & theirs[0] and not behind & theirs[1]:
            yield name


def main():
    found = looked = 0
    for top in sys.argv[1:] or FOLDERS:
        for folder, _, files in sorted(os.walk(os.path.join(ROOT, top))):
            for file in sorted(files):
                if not file.endswith(('.h', '.cc')):
                    continue
                looked += 1
                for name in unused(os.path.join(folder, file)):
                    print(f'{os.path.relpath(os.path.join(folder, file), ROOT)}: nothing of "{name}" is used')
                    found += 1
    names, members = own_names(os.path.join(ROOT, 'libgraph', 'graph.h'))
    assert {'Node', 'NodeSpec', 'Graph'} <= names and {'label', 'insert_before'} <= members, 'headers are not read any more'
    assert looked > 1, 'no source was found'
    print(f'{looked} sources, {found} unused includes')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
