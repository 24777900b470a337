#!/usr/bin/env python3
"""run_view_tests.py --bin BIN [--keep DIR]: what sg-view shows, held against what the other tools say.

The data of the page against sg-print, sg-stat, sg-sim and sg-diff; the other forms against their own rules; the page in a headless
Chromium where there is one (said aloud where not), with screenshots in DIR.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
CAPTURE = os.path.join(HERE, '../../examples/04_run_a_moe_step/capture/rank{r}/step.json.gz')
BROWSERS = ('chromium', 'chromium-browser', 'google-chrome')


class Tools:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)

    def __call__(self, tool, *words, code=0):
        done = subprocess.run([os.path.join(self.folder, tool), *words], capture_output=True)
        assert done.returncode == code, f'{tool} {words}: exit {done.returncode}: {done.stderr.decode()}'
        return done.stdout.decode()

    def json(self, *words, code=0):
        return json.loads(self(*words, code=code))


def check_structure(tools, path, view):
    """Every node's line is the text form's, and its arguments are the values that the line names."""
    stat = tools.json('sg-stat', path, '--json')
    for program in view['programs']:
        texts = view['strings']
        for graph in program['graphs']:
            count = len(graph['label'])
            maker = {line.split()[1]: -1 - i for i, line in enumerate(graph['inputs'])}
            for n, line in enumerate(graph['line']):
                results, call = line.split(' = ', 1) if ' = ' in line else ('', line)
                assert call.startswith(texts[graph['op'][n]].removesuffix('.default')), line
                args = graph['args'][graph['arg_begin'][n]:graph['arg_begin'][n + 1]]
                named = names_in(call[:closing(call)])
                assert [maker[name] for name in named] == args, f'{line}: {named} are not {args}'
                for name in names_in(results):
                    maker[name] = n
            assert len(graph['arg_begin']) == count + 1
    shown = sum(len(graph['label']) for program in view['programs'] for graph in program['graphs'][:1])
    assert shown == stat['nodes'], (shown, stat['nodes'])


def names_in(words):
    """Values that a text names, quoted ones too; texts in quotes are none."""
    return [w for w in re.findall(r'%?"(?:\\.|[^"\\])*"|%[^\s,()\[\]:=]+', words) if w[0] == '%']


def closing(call):
    """Where the arguments of a call end."""
    depth = 0
    for part in re.finditer(r'"(?:\\.|[^"\\])*"|[()]', call):
        depth += (part[0] == '(') - (part[0] == ')')
        if part[0] == ')' and depth == 0:
            return part.start()
    return len(call)


def check_numbers(tools, path, view):
    sim = tools.json('sg-sim', path, '--json')
    assert len(view['programs']) == len(sim['ranks'])
    for program, timeline in zip(view['programs'], sim['ranks']):
        time, memory = program['time'], program['memory']
        assert time['makespan_us'] == timeline['makespan_us']
        assert abs(time['exposed_us'] - sum(timeline['exposed_us'].values())) < 1e-6 * max(1, time['exposed_us'])
        assert all(b <= e <= time['makespan_us'] + 0.01 for b, e in zip(time['begin'], time['end']))
        assert any(time['critical'])
        assert max(memory['live'], default=0) == memory['peak_bytes']
        assert not memory['live'] or memory['live'][memory['peak_at']] == memory['peak_bytes']
        # pieces that lie in others are not counted twice, so the sum is no less
        for n, live in enumerate(memory['live']):
            if n % 97 == 0:
                pieces = sum(b for b, f, l in zip(memory['bytes'], memory['first'], memory['last']) if f <= n <= l)
                assert pieces >= live or program['graphs'][0]['bodies'], (n, pieces, live)
    if len(view['programs']) == 1:
        stat = tools.json('sg-stat', path, '--json')
        assert view['programs'][0]['memory']['peak_bytes'] == stat['memory']['lower_bound_bytes']


def check_changes(tools, a, b):
    view = tools.json('sg-view', a, b, '--json')
    diff = tools.json('sg-diff', a, b, '--json', code=1)
    text = set(re.sub(r'\s+', ' ', line).strip() for line in tools('sg-print', a).splitlines())
    counted = {'same': 0, 'added': 0, 'removed': 0, 'changed': 0}
    for program in view['programs']:
        for graph in program['graphs']:
            changes = graph['changes']
            for key in counted:
                counted[key] += changes[key]
            assert len(changes['removed_nodes']) == changes['removed']
            assert sum(1 for s in changes['state'] if s == 1) == changes['added']
            for place, _, line in changes['removed_nodes']:
                assert 0 <= place <= len(graph['label'])
                assert re.sub(r'\s+', ' ', line) in text, line
    older = tools.json('sg-view', a, '--json')
    for program, old in zip(view['programs'], older['programs']):
        before = program['before']
        assert before['nodes'] == len(old['graphs'][0]['label']) and before['peak_bytes'] == old['memory']['peak_bytes']
        assert before['makespan_us'] == old['time']['makespan_us'] and before['exposed_us'] == old['time']['exposed_us']
        assert max(before['live']) == max(old['memory']['live']) and len(before['live']) <= 1000, len(before['live'])
    for key in ('added', 'removed'):
        told = sum(p['counts'][key] * max(1, len(p.get('ranks') or [])) for p in diff['programs'])
        assert counted[key] == told, (key, counted, diff['programs'][0]['counts'])
    assert counted['added'] > 0 and counted['removed'] > 0


def check_page(tools, path, folder):
    page = tools('sg-view', path)
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    assert json.loads(data) == tools.json('sg-view', path, '--json')
    own = page.replace(data, '')
    for word in ('http:', 'https:', ' src=', '@import', 'url(', 'fetch(', 'XMLHttpRequest', '{{'):
        assert word not in own, f'the page reaches out: {word}'
    out = os.path.join(folder, 'page.html')
    tools('sg-view', path, '-o', out)
    assert open(out, encoding='utf-8').read() == page
    return out


def check_hostile_names(tools, folder):
    """Names that look like markup stay names."""
    text = tools('sg-print', os.path.join(HERE, '../../examples/01_a_graph_as_text/step.sg.txt'))
    evil = '</script><script>document.title=1</script><!--'
    path = os.path.join(folder, 'evil.sg.txt')
    text = re.sub(r'job "[^"]*"', lambda _: 'job ' + json.dumps(evil), text, count=1)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    page = tools('sg-view', path)
    assert page.count('</script>') == 2 and '<!--' not in page
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    assert json.loads(data)['title'] == evil


def check_forms(tools, path, folder):
    nodes = len(tools.json('sg-view', path, '--json')['programs'][0]['graphs'][0]['label'])
    dot = tools('sg-view', path, '--format', 'dot')
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', dot)
    assert bare.startswith('digraph') and bare.count('{') == bare.count('}')
    made = set(re.findall(r'^\s*([ni]\d+) \[', bare, re.M))
    edges = re.findall(r'^\s*([ni]\d+) -> (n\d+)$', bare, re.M)
    assert len([m for m in made if m[0] == 'n']) == nodes and edges and all(a in made and b in made for a, b in edges)

    svg = ElementTree.fromstring(tools('sg-view', path, '--format', 'svg'))
    assert len(svg.findall('{http://www.w3.org/2000/svg}rect')) > 10 and svg.find('{http://www.w3.org/2000/svg}polygon') is not None

    trace = os.path.join(folder, 'trace.json')
    tools('sg-sim', path, '--trace', trace)
    assert tools.json('sg-view', path, '--format', 'perfetto') == json.load(open(trace, encoding='utf-8'))

    explorer = tools.json('sg-view', path, '--format', 'model-explorer')
    for graph in explorer['graphs']:
        outputs = {node['id']: {o['id'] for o in node.get('outputsMetadata', [])} or {'0'} for node in graph['nodes']}
        assert len(outputs) == len(graph['nodes'])
        for node in graph['nodes']:
            for edge in node['incomingEdges']:
                assert edge['sourceNodeOutputId'] in outputs[edge['sourceNodeId']], edge


def check_lanes(tools, folder):
    """Two communicators of one axis are two lanes in every timeline, with a name each."""
    path = os.path.join(folder, 'isolated.sg.txt')
    with open(path, 'w', encoding='utf-8') as file:
        file.write("""sg 1.0 job "isolated" world 2
group @ep [0 1]
group @ep:1 [0 1]
graph rank *
  input %x : f32[4096, 64]
  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @ep)
    %b = _c10d_functional.all_gather_into_tensor(%x, 2, @ep:1)
    %v = _c10d_functional.wait_tensor(%a)
    %w = _c10d_functional.wait_tensor(%b)
  output %v
  output %w
""")
    names = ['group @ep', 'group @ep:1']
    assert [n for n in tools.json('sg-view', path, '--json')['programs'][0]['time']['lanes'] if 'group' in n] == names
    svg = ElementTree.fromstring(tools('sg-view', path, '--format', 'svg'))
    texts = [t.text for t in svg.iter('{http://www.w3.org/2000/svg}text')]
    assert [t for t in texts if t and t.startswith('group')] == names, texts
    tracks = [e['args']['name'] for e in tools.json('sg-view', path, '--format', 'perfetto')['traceEvents']
              if e['name'] == 'thread_name']
    assert [t for t in tracks if 'group' in t] == ['group ep', 'group ep:1'], tracks


def check_refusals(tools, path):
    tools('sg-view', path, path, '--format', 'dot', code=2)
    tools('sg-view', '-', '-', code=2)
    tools('sg-view', path, '--machine', 'h1000', code=2)
    tools('sg-view', path + '.none', code=3)
    tools('sg-view', path, '--json', '--format', 'svg', code=2)


class Browser:
    """With a profile of its own: one that shares another's hands the page over to it, and ends."""

    def __init__(self, program, keep, profile):
        self.program, self.keep, self.profile = program, keep, profile

    def run(self, address, *words):
        base = [self.program, '--headless', '--no-sandbox', '--disable-gpu', '--window-size=1600,950',
                '--virtual-time-budget=10000',
                '--user-data-dir=' + self.profile]
        done = subprocess.run([*base, *words, address], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return done.stdout.decode()

    def document(self, address):
        """What the page has made of itself. A browser on a busy machine may end before it has drawn: it is asked again."""
        for _ in range(4):
            document = self.run(address, '--dump-dom')
            if 'data-paint-ms' in document:
                break
        return document

    def picture(self, address, name):
        path = os.path.join(self.keep, name)
        self.run(address, '--screenshot=' + path)
        assert os.path.getsize(path) > 20000, f'{path} is empty'


def check_in_browser(browser, page, changes, data, changed):
    graph = data['programs'][0]['graphs'][0]
    address = 'file://' + page
    document = browser.document(address)
    assert 'data-paint-ms' in document, 'the page did not come to its end'
    assert f'{len(graph["label"])} nodes' in document and 'live</h2>' in document

    query = data['strings'][graph['op'][len(graph['op']) // 2]].split('.')[1]
    module_or_source = [query.lower() in s.lower() for s in data['strings']]
    hits = [n for n, line in enumerate(graph['line']) if query.lower() in line.lower() or module_or_source[graph['module'][n]] or module_or_source[graph['source'][n]]]
    document = browser.document(f'{address}#q={query}')
    assert f'{len(hits)} of {len(graph["label"])} nodes' in document, f'{query}: {len(hits)} expected'

    n = len(graph['label']) // 3
    document = browser.document(f'{address}#n={graph["label"][n]}')
    assert f'<h2>%{graph["label"][n]}</h2>' in document and re.search(r'<div class="row [^"]*picked"', document)
    browser.picture(f'{address}#n={graph["label"][n]}', 'view.png')

    # The scripts stand in the document too, so what is looked for has to be markup that only they can have made.
    gone = changed['programs'][0]['graphs'][0]['changes']
    document = browser.document('file://' + changes)
    assert re.search(r'was [0-9.]+ .?s, %d nodes' % changed['programs'][0]['before']['nodes'], document), 'nothing of before'
    assert re.search(r'<td>removed</td><td class="number">%d</td>' % gone['removed'], document), 'the panel has no counts'
    assert re.search(r'<div class="row [^"]*(added|changed|removed)', document), 'no row has a colour'
    browser.picture('file://' + changes, 'changes.png')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--bin', required=True)
    parser.add_argument('--keep', help='where screenshots are left')
    options = parser.parse_args()
    tools = Tools(options.bin)
    # a browser may still write into its profile
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        step, changed, random = (os.path.join(folder, name) for name in ('step.sg', 'changed.sg', 'random.sg'))
        tools('sg-import', '-q', CAPTURE, '-o', step)
        tools('sg-clean', '-q', step, '-o', changed)
        tools('make_job', '--nodes', '400', '--seed', '7', '-o', random)
        for path in (step, random):
            view = tools.json('sg-view', path, '--json')
            check_structure(tools, path, view)
            check_numbers(tools, path, view)
            check_forms(tools, path, folder)
        remat = os.path.join(folder, 'remat.sg')
        tools('sg-remat', '-q', changed, '--policy', 'full', '-o', remat)
        check_changes(tools, step, remat)
        check_lanes(tools, folder)
        check_hostile_names(tools, folder)
        check_refusals(tools, step)
        page = check_page(tools, step, folder)
        changes = os.path.join(folder, 'changes.html')
        tools('sg-view', step, remat, '-o', changes)
        program = next((b for b in map(shutil.which, BROWSERS) if b), None)
        if program:
            keep = options.keep or folder
            os.makedirs(keep, exist_ok=True)
            check_in_browser(Browser(program, keep, os.path.join(folder, 'profile')), page, changes,
                             tools.json('sg-view', step, '--json'),
                             tools.json('sg-view', step, remat, '--json'))
        else:
            print('SKIPPED: the page in a browser: there is no Chromium here')
    print('sg-view shows what the other tools say')


if __name__ == '__main__':
    sys.exit(main())
