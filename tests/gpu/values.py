"""Files of tensors, and numbers as they lie in them."""
import json
import struct


def safetensors(path, tensors):
    """name -> (dtype, shape, bytes)"""
    header, body = {}, b''
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)


def bf16(values):
    return b''.join(struct.pack('<f', v)[2:] for v in values)
