"""Files of tensors (safetensors) without the package of that name: {name: (dtype, shape, bytes)}; and their numbers."""
import json
import struct

LETTERS = {'F64': 'd', 'F32': 'f', 'F16': 'e', 'I64': 'q', 'U64': 'Q', 'I32': 'i', 'U8': 'B', 'BOOL': '?',  # of struct
           'C64': 'Q'}  # the bits


def write_tensors(path, tensors, header=None, metadata=None):
    """`header`: a text instead of the one that fits."""
    entries, at = {'__metadata__': metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = (header or json.dumps(entries)).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def read_tensors(path):
    with open(path, 'rb') as file:
        size, = struct.unpack('<Q', file.read(8))
        entries, data = json.loads(file.read(size)), file.read()
    entries.pop('__metadata__', None)
    return {name: (entry['dtype'], entry['shape'], data[slice(*entry['data_offsets'])])
            for name, entry in entries.items()}


def bf16(numbers):
    """Cut off, not rounded."""
    return b''.join(struct.pack('<f', number)[2:] for number in numbers)


def to_bytes(dtype, numbers):
    return bf16(numbers) if dtype == 'BF16' else struct.pack(f'<{len(numbers)}{LETTERS[dtype]}', *numbers)


def to_numbers(dtype, data):
    """Of bf16 the bits."""
    letter = 'H' if dtype == 'BF16' else LETTERS[dtype]
    return struct.unpack(f'<{len(data) // struct.calcsize(letter)}{letter}', data)
