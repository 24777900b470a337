"""Hostile sources by kind and hostility, for run_hostile_sources.py.

CASES       (kind, hostility) -> cases: what the case is called, the source, what the message is to say (a pattern; None: an
            import or an error). A source is bytes, or {path in a folder: bytes or a function that makes the entry}.
NOTHING     (kind, hostility) -> why a source of that kind cannot be hostile so.
"""
import copy
import gzip
import io
import json
import os
import struct
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = ('capture', 'gz', 'pt2', 'trace', 'tlparse', 'fx', 'safetensors')
HOSTILITIES = ('truncated', 'bit-flipped', 'deep nesting', 'huge numbers', 'duplicate names', 'cycles', 'forward references',
               'wrong arity', 'million elements', 'bombs', 'paths')
MILLION = 1_000_000
HUGE = 10 ** 30
CASES, NOTHING = {}, {}


def case(kind, hostility, name, source, message):
    CASES.setdefault((kind, hostility), []).append((name, source, message))


def nothing(kind, hostility, why):
    NOTHING[kind, hostility] = why


def read(*path):
    with open(os.path.join(ROOT, *path), 'rb') as f:
        return f.read()


# --- captures: plain, and packed by gzip ---

def tensor(*shape):
    stride = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        stride[i] = stride[i + 1] * shape[i + 1]
    return {'tensor': 'float32', 'shape': list(shape), 'stride': stride, 'device': 'cpu'}


def ref(name):
    return {'ref': name}


def node(name, op='aten.neg.default', args=(ref('x'),), type=None, **more):
    return {'name': name, 'op': op, 'args': list(args), 'kwargs': {}, 'type': type or tensor(4, 4), **more}


def capture(*nodes, outputs=None, **more):
    nodes = list(nodes) or [node('y')]
    last = nodes[-1]['name']
    return {'format': 'step-capture', 'version': 1, 'producer': {}, 'world': {'size': 1, 'rank': 0},
            'inputs': [{'name': 'x', 'type': tensor(4, 4), 'kind': 'input', 'fqn': 'x'}], 'nodes': nodes,
            'outputs': outputs or [{'value': ref(last), 'kind': 'other'}], **more}


def text_of(document, **replaced):
    text = json.dumps(document)
    for old, new in replaced.items():
        assert f'"{old}"' in text, old
        text = text.replace(f'"{old}"', new)
    return text.encode()


def call(graph):
    return {'name': f'call_{graph}', 'op': 'sg.call', 'args': [{'graph': graph}, [ref('x')]], 'kwargs': {}, 'type': [tensor(4, 4)]}


def nested(*names):
    """Graphs of which each calls the next, and the last the first."""
    return {name: {'inputs': [{'name': 'x', 'type': tensor(4, 4)}], 'nodes': [call(names[(i + 1) % len(names)])],
                   'outputs': []} for i, name in enumerate(names)}


def capture_cases(kind, pack):
    def add(hostility, name, source, message):
        case(kind, hostility, name, pack(source), message)

    deep = '[' * MILLION + ']' * MILLION
    add('deep nesting', 'arguments', text_of(capture(node('y', args=[ref('x'), 'HERE'])), HERE=deep), r'@\d+: error: the JSON nests deeper')
    add('deep nesting', 'a type', text_of(capture(node('y', type='HERE')), HERE=deep), r'@\d+: error: the JSON nests')
    add('deep nesting', 'a key that nobody knows', text_of(capture(more='HERE'), HERE=deep), r'@\d+: error: the JSON nests')
    add('huge numbers', 'an argument', text_of(capture(node('y', args=[ref('x'), HUGE]))), r'nodes\[0\]\.args\[1\]|@\d+')
    add('huge numbers', 'a shape', text_of(capture(node('y', type=tensor(1 << 62, 1 << 62)))), r'more bytes than 64 bits')
    add('huge numbers', 'digits without end', text_of(capture(node('y', args=['HERE'])), HERE='9' * MILLION), r'@\d+|args')
    add('huge numbers', 'an exponent', text_of(capture(node('y', args=['HERE'])), HERE='1e999999999'), r'@\d+|args')
    add('huge numbers', 'a world', text_of(capture(world={'size': 1 << 60, 'rank': 0})), r'world\.size: .*outside 0')
    add('huge numbers', 'a rank', text_of(capture(world={'size': 2, 'rank': 1 << 60})), r'world\.rank: .*outside 0')
    add('huge numbers', 'a symbol', text_of(capture(symbols=[{'name': 's0', 'kind': 'input', 'min': 2, 'max': HUGE}])), r'symbols|@\d+: error: .*64 bits')
    add('huge numbers', 'members of a group', text_of(capture(
        world={'size': 2, 'rank': 0}, groups=[{'id': 'g', 'mesh_axis': 'dp', 'ranks': [0, 1 << 40]}])), r'groups\[0\]')
    add('duplicate names', 'nodes', text_of(capture(node('y'), node('y'))), r'nodes\[1\]\.name: .*`y` is taken by nodes\[0\]')
    add('duplicate names', 'a node and an input', text_of(capture(node('x'))), r'nodes\[0\]\.name: .*`x` is taken')
    add('duplicate names', 'keys', text_of(capture()).replace(b'"world"', b'"world": {"size": 1, "rank": 0}, "world"'), r'world: error: the key occurs twice')
    add('duplicate names', 'symbols', text_of(capture(symbols=[{'name': 'u0', 'kind': 'data'}] * 2)), r'symbols\[1\]')
    add('cycles', 'of itself', text_of(capture(node('y', args=[ref('y')]))), r'nodes\[0\]\.args\[0\]\.ref: .*before it is defined')
    add('cycles', 'of two', text_of(capture(node('y', args=[ref('z')]), node('z', args=[ref('y')]))),
        r'nodes\[0\]\.args\[0\]\.ref: .*before it is defined')
    for names in (('g',), ('g', 'h', 'i')):
        add('cycles', f'of {len(names)} nested graphs', text_of(capture(call('g'), node('y'), graphs=nested(*names))), r'graphs|nested|itself')
    add('forward references', 'to a node', text_of(capture(node('y', args=[ref('z')]), node('z'))),
        r'`z` is used before it is defined, at nodes\[1\]')
    add('forward references', 'to nothing', text_of(capture(node('y', args=[ref('no')]))), r'no node or input is called `no`')
    add('wrong arity', 'too few arguments', text_of(capture(node('y', 'aten.mm.default'))), r'%y: error: argument "mat2" is missing')
    add('wrong arity', 'too many', text_of(capture(node('y', args=[ref('x')] * 9))), r'%y: error: more arguments than the op takes')
    add('wrong arity', 'a result that is not there', text_of(capture(
        node('s', 'my.op', [ref('x')], [tensor(2, 4)] * 2),
        node('y', 'python.getitem', [ref('s'), 7], tensor(2, 4)))), r'`s` has no result 7')
    add('wrong arity', 'results of another number', text_of(capture(node('y', type=[tensor(4, 4)] * 3))),
        r'outputs\[0\]\.value\.ref: .*`y` has several results')
    add('million elements', 'of a list', text_of(capture(node('y', 'aten.view.default', [ref('x'), [1] * MILLION]))), r'%y: error: ')
    add('million elements', 'of a shape', text_of(capture(node('y', type=tensor(*[1] * MILLION)))), r'%y: error: .* bytes ')
    add('million elements', 'tensors of a list', text_of(capture(node('y', 'aten.cat.default', [[ref('x')] * MILLION]))), r'%y: error: ')
    add('million elements', 'of a name', text_of(capture(node('y' * MILLION, args=[ref('z')]))), r'`z`')


capture_cases('capture', lambda text: text)
capture_cases('gz', lambda text: gzip.compress(text, 1))
nothing('capture', 'bombs', 'nothing in it unpacks')
nothing('capture', 'paths', 'no name in it is a path that is opened')
nothing('gz', 'paths', 'the name in its header is not used')
case('gz', 'bombs', 'a capture and zeros', lambda: gzip.compress(text_of(capture())[:-1] + b' ' * (1 << 28), 9), r'unpack')
case('gz', 'bombs', 'many members', lambda: gzip.compress(text_of(capture())) + gzip.compress(b' ' * (1 << 26), 9) * 40, r'unpack')
case('gz', 'bombs', 'packed twice', gzip.compress(gzip.compress(text_of(capture()))), r'packed by gzip twice')


# --- exported programs ---

PT2 = read('tests', 'data', 'pt2', 'two_sizes', 'model.pt2')
BRANCHES = read('tests', 'data', 'pt2', 'cond', 'model.pt2')


def parts(archive):
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {info.filename: file.read(info) for info in file.infolist()}


def zip_of(entries, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as file:
        for name, content in entries.items() if isinstance(entries, dict) else entries:
            file.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def pt2(edit, archive=PT2, **replaced):
    """With whole checksums. `edit` changes the program, or gives another."""
    entries = parts(archive)
    name = next(n for n in entries if '/models/' in n)
    program = json.loads(entries[name])
    other = edit(program)
    entries[name] = text_of(program if other is None else other, **replaced)
    return zip_of(entries)


def graph_of(program):
    return program['graph_module']['graph']


def argument(program, at=1, which=0):
    return graph_of(program)['nodes'][at]['inputs'][which]


def pt2_edit(hostility, name, message, **replaced):
    def add(edit):
        case('pt2', hostility, name, lambda: pt2(edit, **replaced), message)
    return add


@pt2_edit('deep nesting', 'arguments', r'model\.json', HERE='{"as_string_to_argument":{"k":' * MILLION + '1' + '}}' * MILLION)
def _(p):
    argument(p)['arg'] = 'HERE'


@pt2_edit('deep nesting', 'a symbol', r'model\.json|tensor_values|expr')
def _(p):
    graph_of(p)['sym_int_values'] = {'sym_size_int_3': {'as_expr': {'expr_str': 'Add(' * 100000 + "Symbol('s17')" + ')' * 100000, 'hint': None}}}


@pt2_edit('huge numbers', 'an argument', r'model\.json', HERE='9' * MILLION)
def _(p):
    argument(p, 0, 1)['arg'] = {'as_int': 'HERE'}


@pt2_edit('huge numbers', 'a range', r'range_constraints|s17|@\d+: error: .*64 bits')
def _(p):
    p['range_constraints']['s17']['max_val'] = HUGE


@pt2_edit('huge numbers', 'a size', r'weight_0: .*`l\.weight` has another element type or shape')
def _(p):
    graph_of(p)['tensor_values']['p_l_weight']['sizes'] = [{'as_int': 1 << 62}] * 2


@pt2_edit('huge numbers', 'an element type', r'element type')
def _(p):
    graph_of(p)['tensor_values']['p_l_weight']['dtype'] = 1 << 60


@pt2_edit('duplicate names', 'nodes', r'nodes\[2\].*`linear` is taken')
def _(p):
    graph_of(p)['nodes'][2]['outputs'] = [{'as_tensor': {'name': 'linear'}}]


@pt2_edit('duplicate names', 'inputs', r'taken|twice')
def _(p):
    graph_of(p)['inputs'][3] = copy.deepcopy(graph_of(p)['inputs'][2])


@pt2_edit('cycles', 'of itself', r'nodes\[1\].*`linear` is used before it is defined')
def _(p):
    argument(p)['arg'] = {'as_tensor': {'name': 'linear'}}


@pt2_edit('forward references', 'to a node', r'nodes\[1\].*`sum_1` is used before it is defined')
def _(p):
    argument(p)['arg'] = {'as_tensor': {'name': 'sum_1'}}


@pt2_edit('forward references', 'to nothing', r'no node or input is called `no`')
def _(p):
    argument(p)['arg'] = {'as_tensor': {'name': 'no'}}


@pt2_edit('wrong arity', 'too few arguments', r'linear')
def _(p):
    del graph_of(p)['nodes'][1]['inputs'][1:]


@pt2_edit('wrong arity', 'too many', r'nodes\[1\]\.inputs\[3\]: .*`input` occurs twice')
def _(p):
    graph_of(p)['nodes'][1]['inputs'] *= 9


@pt2_edit('wrong arity', 'the signature\'s inputs', r'signature|inputs')
def _(p):
    p['graph_module']['signature']['input_specs'].pop()


@pt2_edit('wrong arity', 'the signature\'s outputs', r'2 outputs, the signature 1')
def _(p):
    p['graph_module']['signature']['output_specs'].pop()


@pt2_edit('wrong arity', 'results', r'nodes\[5\]: .*name `flatten` is taken by .*nodes\[1\]')
def _(p):
    graph_of(p)['nodes'][1]['outputs'] = [{'as_tensors': [{'name': 'linear'}, {'name': 'flatten'}]}]


@pt2_edit('million elements', 'of a list', r'node %view: .*do not allow a view of that shape')
def _(p):
    argument(p, 3, 1)['arg'] = {'as_ints': [1] * MILLION}


@pt2_edit('million elements', 'of a shape', r'tensor_values\.x: .*1000000 sizes and 3 strides')
def _(p):
    graph_of(p)['tensor_values']['x']['sizes'] = [{'as_int': 1}] * MILLION


@pt2_edit('million elements', 'nodes without a use', None)
def _(p):
    graph_of(p)['nodes'][4:4] = [{'target': 'torch.ops.aten.neg.default', 'metadata': {}, 'inputs': [
        {'name': 'self', 'arg': {'as_tensor': {'name': 'cat'}}, 'kind': 1}], 'outputs': [{'as_tensor': {'name': f'n{i}'}}]} for i in range(100000)]


def branches_of_themselves():
    def edit(p):
        graphs = [n for n in graph_of(p)['nodes'] if 'cond' in n['target']]
        assert graphs
        for n in graphs:
            for i in n['inputs']:
                if 'as_graph' in i['arg']:
                    inner = i['arg']['as_graph']['graph']
                    inner['nodes'].insert(0, copy.deepcopy(n))
    return pt2(edit, BRANCHES)


case('pt2', 'cycles', 'a branch that calls its own cond', branches_of_themselves,
     r'nodes\[2\]\.inputs\[1\]\.arg\.as_graph\.graph\.nodes\[0\]: .*no node or input is called `gt`')


def overlapping():
    """Many names of one packed entry: small, and unpacks to much (Fifield's bomb)."""
    archive = bytearray(zip_of({'archive/kernel': b'\0' * (60 << 20)}, zipfile.ZIP_DEFLATED))
    end = archive.rfind(b'PK\5\6')
    first = archive.index(b'PK\1\2')
    record = bytes(archive[first:end])
    many = b''.join(record.replace(b'archive/kernel', b'archive/%06d' % i) for i in range(2000))
    tail = bytearray(archive[end:])
    tail[8:16] = struct.pack('<HHI', 2000, 2000, len(many))
    return bytes(archive[:first]) + many + bytes(tail)


def with_entry(name, content=b'x', method=zipfile.ZIP_STORED):
    return lambda: zip_of([*parts(PT2).items(), (name, content() if callable(content) else content)], method)


case('pt2', 'duplicate names', 'entries', with_entry('archive/models/model.json'), r'occurs twice')
case('pt2', 'bombs', 'one entry', with_entry('archive/data/weights/more', lambda: b'\0' * (1 << 28), zipfile.ZIP_DEFLATED), r'would unpack to')
case('pt2', 'bombs', 'entries that overlap', overlapping, r'would unpack to|corrupt|overlap|entr')
case('pt2', 'bombs', 'a program of blanks', lambda: zip_of({**parts(PT2), 'archive/models/model.json': b' ' * (128 << 20)},
                                                         zipfile.ZIP_DEFLATED), r'would unpack to')
for escape in ('../escaped', 'archive/../../escaped', '/tmp/escaped', 'archive\\..\\escaped', 'C:\\escaped', 'archive/./../../escaped'):
    case('pt2', 'paths', escape, with_entry(escape), r'escaped: error: the entry has an? (name|path|absolute path)')
case('pt2', 'paths', 'a name with a NUL', lambda: with_entry('archive/aXb')().replace(b'archive/aXb', b'archive/a\0b'), None)


# --- safetensors, as inputs of a step ---

def safetensors(header, data=b'\0' * 64, size=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(header) if size is None else size) + header + data


def stored(begin=0, end=64, shape=(4, 4), dtype='F32', **more):
    return {'dtype': dtype, 'shape': list(shape), 'data_offsets': [begin, end], **more}


def stored_text(**replaced):
    return json.dumps({'x': {**stored(), **replaced}})


def values(hostility, name, header, message, **more):
    case('safetensors', hostility, name, lambda: safetensors(header() if callable(header) else header, **more), message)


values('deep nesting', 'the header', lambda: b'{"x":' * MILLION, r'@\d+')
values('deep nesting', 'metadata', lambda: b'{"__metadata__":{"k":' + b'[' * MILLION, r'@\d+')
values('huge numbers', 'the header\'s length', b'{}', r'a header of 18446744073709551615 bytes', size=(1 << 64) - 1)
values('huge numbers', 'an offset', {'x': stored(0, HUGE)}, r'@\d+')
values('huge numbers', 'a shape', {'x': stored(shape=[1 << 62, 8])}, r'too large')
values('huge numbers', 'digits', lambda: stored_text(shape='HERE').replace('"HERE"', '[' + '9' * MILLION + ']').encode(), r'@\d+')
values('duplicate names', 'tensors', b'{"x":%b,"x":%b}' % (json.dumps(stored(0, 0, [0])).encode(), json.dumps(stored()).encode()),
       r'`x` occurs twice')
values('duplicate names', 'keys', stored_text().replace('"dtype"', '"dtype":"F32","dtype"').encode(), r'occurs twice')
values('wrong arity', 'offsets', {'x': {**stored(), 'data_offsets': [0, 64, 64]}}, r'two integers')
values('wrong arity', 'more data than the shape', {'x': stored(shape=[4])}, r'needs 16 bytes')
values('wrong arity', 'fewer axes than the graph', {'x': stored(shape=[16])}, r'`x`.*f32\[16\]')
values('million elements', 'of a shape', lambda: {'x': stored(shape=[1] * MILLION)}, r'more than 64 dimensions')
EMPTY = json.dumps(stored(64, 64, [0]))
values('million elements', 'tensors', lambda: (stored_text()[:-1] + ''.join(f',"t{i}":{EMPTY}' for i in range(MILLION)) + '}').encode(),
       r'no input `t')
for hostility, why in (('cycles', 'no value refers to another'), ('forward references', 'no value refers to another'),
                       ('bombs', 'nothing in it unpacks'), ('paths', 'names in it are names of inputs')):
    nothing('safetensors', hostility, why)
