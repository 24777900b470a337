"""Hostile FX texts, TORCH_TRACE logs and folders of tlparse: more of hostile_sources.CASES."""
import gzip
import json
import os

from hostile_sources import HUGE, MILLION, case, nothing, read

ARGUMENT = 'x: "f32[4, 4]"'


def fx(*lines, result='y', arguments=ARGUMENT, more=''):
    body = ''.join(f'        {line}\n' for line in lines or ('y: "f32[4, 4]" = torch.ops.aten.neg.default(x)',))
    return f'class G(torch.nn.Module):\n    def forward(self, {arguments}):\n{body}        return ({result},)\n{more}'


def nested(*names):
    """Graphs of which each takes the next for its own, and the last the first."""
    out = ''
    for i, name in enumerate(names):
        after = names[(i + 1) % len(names)]
        out += (f'    class {name}(torch.nn.Module):\n        def forward(self, x: "f32[4, 4]"):\n            {after} = self.{after}\n'
                f'            y: "f32[4, 4]" = torch.ops.higher_order.wrap({after}, x)\n            return (y,)\n')
    return out


def event(fields, payload=None, compile='"frame_id": 0, "frame_compile_id": 0, "attempt": 0'):
    text = fields if isinstance(fields, str) else json.dumps(fields)[1:-1]
    out = 'V1121 02:33:03.218000 13001 torch/x.py:28] {%s, %s%s}\n' % (text, compile, ', "has_payload": "00"' if payload is not None else '')
    return out + ''.join(f'\t{line}\n' for line in (payload or '').splitlines())


DYNAMO = 'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[4, 4]"):\n        return (L_x_,)\n'


def log(*lines, text=None, dynamo=DYNAMO):
    return ''.join(lines) + event('"dynamo_output_graph": {}', dynamo) + event('"aot_inference_graph": {}', text or fx())


def folder(text):
    return {'-_0_0_0/aot_inference_graph_1.txt': text.encode(), 'compile_directory.json': b'{}'}


# What is wrong with a graph is wrong in each of the three.
def text_case(hostility, name, make, message, place=r':\d+:\d+: '):
    told = None if message is None else place + '.*(' + message + ')'
    case('fx', hostility, name, lambda: make().encode(), told)
    case('trace', hostility, name, lambda: log(text=make()).encode(), told)
    case('tlparse', hostility, name, lambda: folder(make()), told)


OP = 'y: "f32[4, 4]" = torch.ops.aten.%s'
text_case('deep nesting', 'an argument', lambda: fx(OP % 'neg.default(x, ' + '[' * MILLION + ']' * MILLION + ')'), 'nested deeper')
text_case('deep nesting', 'a type', lambda: fx('y: "f32[' + '(' * MILLION + '4' + ')' * MILLION + ']" = torch.ops.aten.neg.default(x)'), 'in the type')
text_case('deep nesting', 'classes', lambda: ''.join(
    ' ' * i + f'class G{i}(torch.nn.Module):\n' + ' ' * i + ' def forward(self, x):\n' + ' ' * i + '  return x\n' for i in range(1000)), None)
text_case('huge numbers', 'an argument', lambda: fx(OP % f'add.Scalar(x, {HUGE})'), 'does not fit')
text_case('huge numbers', 'digits without end', lambda: fx(OP % f'add.Scalar(x, {"9" * MILLION})'), 'does not fit')
text_case('huge numbers', 'a size', lambda: fx(f'y: "f32[{HUGE}]" = torch.ops.aten.neg.default(x)'), 'in the type')
text_case('huge numbers', 'a tensor', lambda: fx(arguments='x: "f32[4611686018427387904, 4]"'), '.', place='')
text_case('huge numbers', 'a group', lambda: fx(OP % f"_c10d_functional.all_reduce.default(x, 'sum', '{HUGE}')".replace('aten.', '')), None)
text_case('huge numbers', 'the size of a group', lambda: fx(
    'y: "f32[4, 4]" = torch.ops._c10d_functional.all_gather_into_tensor.default(x, 4611686018427387904, "0")'), '.', place='')
text_case('duplicate names', 'nodes', lambda: fx(OP % 'neg.default(x)', OP % 'neg.default(x)'), '`y` is taken')
text_case('duplicate names', 'inputs', lambda: fx(arguments=f'{ARGUMENT}, {ARGUMENT}'), 'taken|twice')
text_case('duplicate names', 'arguments', lambda: fx(OP % 'add.Tensor(x, x, alpha = 1, alpha = 2)'), '`alpha` occurs twice')
text_case('cycles', 'of itself', lambda: fx(OP % 'neg.default(y)'), '`y`')
text_case('cycles', 'of two', lambda: fx('a: "f32[4, 4]" = torch.ops.aten.neg.default(y)', OP % 'neg.default(a)'), '`y` is used before it is defined')
for names in (('g',), ('g', 'h', 'i')):
    text_case('cycles', f'of {len(names)} nested graphs', lambda names=names: fx(
        'g = self.g', 'y: "f32[4, 4]" = torch.ops.higher_order.wrap(g, x)', more=nested(*names)), None)
text_case('forward references', 'to a node', lambda: fx('a: "f32[4, 4]" = torch.ops.aten.neg.default(y)', OP % 'neg.default(x)'),
          '`y` is used before it is defined')
text_case('forward references', 'to nothing', lambda: fx(OP % 'neg.default(no)'), 'no node or input is called `no`')
text_case('wrong arity', 'too few arguments', lambda: fx(OP % 'mm.default(x)'), '"mat2" is missing', place='')
text_case('wrong arity', 'too many', lambda: fx(OP % 'neg.default(x, x, x)'), 'more arguments than the op takes', place='')
text_case('wrong arity', 'a result that is not there', lambda: fx(
    's = torch.ops.aten.split.Tensor(x, 2)', 'y: "f32[2, 4]" = s[7]'), 'has 2 results, not 8', place='')
text_case('wrong arity', 'axes and strides', lambda: fx('y: "f32[4][1, 2]" = torch.ops.aten.neg.default(x)'), '1 axes, the stride 2')
text_case('million elements', 'of a list', lambda: fx(OP % ('view.default(x, [' + '1, ' * MILLION + '])')), 'view', place='')
text_case('million elements', 'of a type', lambda: fx('y: "f32[' + '1, ' * MILLION + '1]" = torch.ops.aten.neg.default(x)'), '.', place='')
text_case('million elements', 'of a name', lambda: fx(OP % ('neg.default(' + 'z' * MILLION + ')')), 'no node or input')
text_case('million elements', 'of a line', lambda: fx(OP % 'neg.default(x);  ' + 'x = None; ' * (MILLION // 10)), None)
nothing('fx', 'paths', 'no name in it is a path that is opened')
case('fx', 'bombs', 'a packed text', lambda: gzip.compress(fx().encode() + b'\n' * (1 << 28), 9), 'not JSON')


# --- what logs have besides graphs ---

def source(words, **more):
    return event({'describe_source': {'describer_id': 1, 'id': 0, 'source': words, **more}})


def symbol(**more):
    return event({'create_symbol': {'symbol': 's0', 'val': '4', 'vr': '[2, int_oo]', 'source': "L['x'].size()[0]", **more}})


SYMBOLIC = fx('y: "f32[s0, 4][4, 1]cpu" = torch.ops.aten.neg.default(arg1_1)', arguments='arg0_1: "Sym(s0)", arg1_1: "f32[s0, 4][4, 1]cpu"')
SYMBOLIC_DYNAMO = DYNAMO.replace('L_x_: "f32[4, 4]"', 's0: "Sym(s0)", L_x_: "f32[s0, 4]"')
TWO = fx(OP % 'add.Tensor(arg0_1, arg1_1)', arguments='arg0_1: "f32[4, 4]", arg1_1: "f32[4, 4]"')
TWO_DYNAMO = DYNAMO.replace('L_x_: "f32[4, 4]"', 'L_self_modules_a_parameters_w_: "f32[4, 4]", L_x_: "f32[4, 4]"')


def log_case(hostility, name, make, message):
    case('trace', hostility, name, lambda: make().encode(), message)


def symbolic(*lines):
    return log(*lines, text=SYMBOLIC, dynamo=SYMBOLIC_DYNAMO)


def two(*lines):
    return log(*lines, text=TWO, dynamo=TWO_DYNAMO)


WEIGHT = "L['self']._modules['a']._parameters['w']"
log_case('deep nesting', "a line's JSON", lambda: log(event('"str": ' + '[' * MILLION + ']' * MILLION)), r':1:\d+: .*JSON is broken')
log_case('deep nesting', 'a source', lambda: two(source("L['self']" + "._modules['a']" * 100000 + "._parameters['w']")), None)
log_case('deep nesting', 'a source of brackets', lambda: two(source('[' * MILLION)), None)
log_case('deep nesting', 'a source that is not a text', lambda: two(event({'describe_source': {'source': [[['w']]]}})), None)
log_case('deep nesting', 'a source whose key has no end', lambda: two(source("L['self']._modules['a"), source("L['"), source("L[''")), None)
log_case('deep nesting', 'an assumption', lambda: symbolic(symbol(), event({'guard_added': {'expr': 'Eq(' * 100000 + 's0, 4' + ')' * 100000}})), None)
log_case('deep nesting', "a symbol's range", lambda: symbolic(symbol(vr='[' * 100000)), None)
log_case('huge numbers', "a symbol's number", lambda: symbolic(symbol(val='9' * MILLION)), None)
log_case('huge numbers', "a symbol's range", lambda: symbolic(symbol(vr=f'[-{HUGE}, {HUGE}]')), None)
log_case('huge numbers', 'an assumption', lambda: symbolic(symbol(), event({'guard_added': {'expr': f'Eq(s0, {HUGE})'}})), None)
log_case('huge numbers', 'a rank', lambda: log().replace('"attempt": 0', '"attempt": 0, "rank": 4294967295'), None)
log_case('huge numbers', 'a rank beyond', lambda: log().replace('"attempt": 0', f'"attempt": 0, "rank": {1 << 62}'), None)
log_case('huge numbers', 'a source', lambda: two(source(f"L['self']._modules['{HUGE}']._parameters['{'9' * MILLION}']")), None)
log_case('duplicate names', 'sources', lambda: two(*[source(WEIGHT)] * 1000), None)
log_case('duplicate names', 'sources that Dynamo calls the same', lambda: two(source(WEIGHT), source(WEIGHT.replace("'w'", "'_w'")), source(WEIGHT.replace("'w'", "'__w'"))), None)
log_case('duplicate names', 'one source of two inputs', lambda: two(source(WEIGHT), source("L['w']"), source("L['self']._parameters['x']")), None)
log_case('duplicate names', "symbols", lambda: symbolic(*[symbol(val=str(i)) for i in range(2, 1000)]), None)
log_case('duplicate names', "a line's keys", lambda: log(event('"str": 1, "str": 2')), None)
log_case('duplicate names', 'graphs of one compilation', lambda: log() + event('"aot_inference_graph": {}', fx()), r'2 graphs aot_inference_graph')
log_case('cycles', 'a symbol of itself', lambda: symbolic(symbol(), event({'guard_added': {'expr': 'Eq(s0, s0 + 1)'}})), None)
log_case('forward references', 'a source behind its graph', lambda: two() + source(WEIGHT), None)
log_case('forward references', 'a symbol that no graph has', lambda: log(symbol(symbol='s99')), None)
log_case('forward references', 'a backward without its forward', lambda: event('"aot_backward_graph": {}', fx()), r'no graph of operators')
log_case('wrong arity', "fewer of Dynamo's inputs", lambda: log(source(WEIGHT), text=TWO), None)
log_case('wrong arity', 'a source without its words', lambda: two(event({'describe_source': {}}), event({'describe_source': 7})), None)
log_case('million elements', 'sources', lambda: two(*[source(WEIGHT.replace("'a'", f"'{i}'")) for i in range(MILLION // 5)]), None)
log_case('million elements', 'lines that hold no graph', lambda: event({'str': ['a', 1]}) * MILLION, r'holds no artefacts')
log_case('million elements', 'symbols', lambda: symbolic(*[symbol(symbol=f's{i}') for i in range(MILLION // 5)]), None)
log_case('million elements', 'compilations', lambda: ''.join(
    event('"aot_inference_graph": {}', '', f'"frame_id": {i}, "frame_compile_id": 0, "attempt": 0') for i in range(MILLION // 5)), r'200000 compilations')
log_case('million elements', 'of a source', lambda: two(source("L['" + 'w' * MILLION + "']")), None)
log_case('paths', 'of a source file', lambda: log(source("L['../../etc/passwd']")).replace('torch/x.py', '../../../etc/passwd'), None)
case('trace', 'bombs', 'a packed log', lambda: gzip.compress(log().encode() + b'\n' * (1 << 28), 9), 'not JSON')


# --- what folders have besides graphs ---

def linked(target):
    return lambda path: os.symlink(target, path)


GRAPH = '-_0_0_0/aot_inference_graph_1.txt'
NOTHING_IN_IT = r'the trace holds no artefacts'
case('tlparse', 'cycles', 'a link to a folder above', lambda: {**folder(fx()), '-_0_0_0/loop': linked('..'), 'loop': linked('.')}, None)
case('tlparse', 'duplicate names', 'graphs', lambda: {**folder(fx()), '-_0_0_0/aot_inference_graph_2.txt': fx().encode()}, r'2 graphs')
case('tlparse', 'forward references', 'no graph', lambda: {'compile_directory.json': b'{}'}, NOTHING_IN_IT)
case('tlparse', 'million elements', 'files', lambda: {**folder(fx()), **{f'-_{i}_0_0/aot_inference_graph_1.txt': b'x' for i in range(1, 3000)}}, r'3000 compilations')
case('tlparse', 'huge numbers', 'of a compilation', lambda: {f'-_{HUGE}_{HUGE}_{HUGE}/aot_inference_graph_{HUGE}.txt': fx().encode(), 'compile_directory.json': b'{}'}, None)
case('tlparse', 'deep nesting', 'of folders', lambda: {'d/' * 500 + GRAPH: fx().encode(), 'compile_directory.json': b'{}'},
     NOTHING_IN_IT)
for name, make in (('a link that leaves the folder', linked('/etc/passwd')), ('a link to what never ends', linked('/dev/zero')), ('a pipe', os.mkfifo)):
    case('tlparse', 'paths', name, lambda make=make: {**folder(fx()), '-_0_0_0/aot_joint_graph_0.txt': make}, None)
    case('tlparse', 'paths', name + ', of a log', lambda make=make: {'dedicated_log_torch_trace_rank_0_x.log': make},
         NOTHING_IN_IT)
case('tlparse', 'bombs', 'a packed graph', lambda: {**folder(fx()), GRAPH: gzip.compress(fx().encode() + b'\n' * (1 << 28), 9)},
     r'aot_inference_graph_1\.txt:1:1: .*not valid UTF-8')
