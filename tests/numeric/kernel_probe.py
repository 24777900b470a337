"""The CPU kernels called beside PyTorch: a `kernel_probe` process and one shared file that holds all tensors."""
import mmap
import os
import subprocess
import tempfile

import torch

DTYPE_NAMES = {getattr(torch, n): n
               for n in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
                                              "uint8", "bool", "complex64", "complex128")}


class KernelError(Exception):
    """The kernel failed the call; the text is its message."""


class Probe:
    def __init__(self, program, size=1 << 30):
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.file = tempfile.NamedTemporaryFile(dir=folder)
        self.file.truncate(size)
        self.size = size
        self.map = mmap.mmap(self.file.fileno(), size)
        self.memory = torch.frombuffer(self.map, dtype=torch.uint8)
        self.free = 64
        self.process = subprocess.Popen([program, self.file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def view(self, offset, dtype, shape, stride):
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
        flat = self.memory[offset:offset + extent * dtype.itemsize].view(dtype)
        return flat.as_strided(shape, stride) if extent else torch.empty(shape, dtype=dtype)

    def empty(self, dtype, shape, stride):
        """A tensor of the shared file, holding rubbish; and its offset."""
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
        offset = self.free
        self.free += (extent * dtype.itemsize + 127) // 64 * 64
        if self.free > self.size:
            raise MemoryError("the shared file is full")
        self.memory[offset:self.free].fill_(0xA5 if dtype != torch.bool else 1)
        return self.view(offset, dtype, shape, stride), offset

    def place(self, t):
        """A copy of `t` in the shared file, with its strides."""
        view, offset = self.empty(t.dtype, tuple(t.shape), tuple(t.stride()))
        if t.numel():
            physical = t.conj() if t.is_conj() else t
            if any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride())):
                index = tuple(slice(0, 1) if s == 0 else slice(None) for s in t.stride())
                view[index].copy_(physical[index])
            else:
                view.copy_(physical)
        return view, f"tensor {DTYPE_NAMES[t.dtype]} {offset} {int(t.is_conj())} {t.dim()} " + " ".join(map(str, (*t.shape, *t.stride())))

    def value(self, v, kind):
        if v is None:
            return "none"
        if isinstance(v, torch.Tensor):
            return self.place(v)[1]
        if isinstance(v, bool):
            return f"bool {int(v)}"
        if isinstance(v, torch.dtype):
            return f"dtype {DTYPE_NAMES[v]}"
        if isinstance(v, int):
            return f"ints 1 {v}" if kind == "int[]" else f"int {v}"
        if isinstance(v, float):
            return f"float {v!r}"
        if isinstance(v, complex):
            return f"complex {v.real!r} {v.imag!r}"
        if isinstance(v, str):
            return f"text {v}"
        if isinstance(v, (list, tuple)):
            if kind == "int[]" or (v and all(isinstance(x, int) for x in v)):
                return f"ints {len(v)} " + " ".join(str(int(x)) for x in v)
            if v and all(isinstance(x, (int, float)) for x in v):
                return f"values {len(v)} " + " ".join(self.value(x, "") for x in v)
            return f"tensors {len(v)} " + " ".join(self.value(x, "") for x in v)
        raise TypeError(f"no way to pass {v!r}")

    def call(self, op, arguments, results, threads=1, numerics="fast", write=()):
        """`arguments`: (name, value, kind); `results`: tensors to be like, a dtype where the kernel allocates, or None.
        `write`: the name of the argument that result i is, by i. Returns tensors, or raises KernelError."""
        self.free = 64
        words, placed = [f"call {op} {threads} {numerics}"], {}
        for name, value, kind in arguments:
            if isinstance(value, torch.Tensor):
                placed[name], text = self.place(value)
            else:
                text = self.value(value, kind)
            if name in write:
                placed[name + " text"] = text
            words.append(f"arg {name} {text}")
        outputs = []
        for i, like in enumerate(results):
            if i < len(write) and write[i]:
                outputs.append(placed[write[i]])
                words.append("res " + placed[write[i] + " text"])
            elif isinstance(like, torch.Tensor):
                view, offset = self.empty(like.dtype, tuple(like.shape), tuple(like.stride()))
                outputs.append(view)
                words.append(f"res tensor {DTYPE_NAMES[like.dtype]} {offset} 0 {like.dim()} " + " ".join(map(str, (*like.shape, *like.stride()))))
            elif isinstance(like, torch.dtype):
                outputs.append(like)
                words.append(f"alloc {DTYPE_NAMES[like]}")
            else:
                outputs.append(None)
                words.append("none")
        words += [f"free {self.free}", "go\n"]
        self.process.stdin.write(" ".join(words))
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"kernel_probe died in {op}")
        return self.read_answer(op, line.split(), outputs)

    def read_answer(self, op, words, outputs):
        if words[0] == "missing":
            raise NotImplementedError(op)
        if words[0] == "error":
            raise KernelError(" ".join(words[1:]))
        numbers, at = [], 1
        while at < len(words):
            if words[at] == "number":
                numbers.append(float(words[at + 1]))
                at += 2
                continue
            index, offset, rank = int(words[at + 1]), int(words[at + 2]), int(words[at + 3])
            shape = [int(w) for w in words[at + 4:at + 4 + rank]]
            stride, step = [], 1
            for n in reversed(shape):
                stride.insert(0, step)
                step *= max(n, 1)
            outputs[index] = self.view(offset, outputs[index], shape, stride)
            at += 4 + rank
        return [o.clone() if isinstance(o, torch.Tensor) else o for o in outputs] + numbers
