"""The files under vectors/: reading and writing them; needs no PyTorch."""
import gzip
from pathlib import Path


def group_of(name):
    """The file that an overload's vectors are in: by the first letter of the op."""
    letter = name.split(".")[1].lstrip("_")[0]
    return letter if letter.isalpha() else "other"


def split(data):
    """The vectors of a file's bytes, each as it stands there."""
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        words = data[at:end].split()
        end += 1
        for _ in range(int(words[6])):
            end = data.index(b"\n", end) + 1
        end += sum(map(int, words[4].split(b"+"))) + int(words[5])
        yield data[at:end]
        at = end


def head(vector):
    """(overload, dtype, origin, checks) of a vector."""
    words = vector[:vector.index(b"\n")].decode().split()
    checks = vector.split(b"\n", int(words[6]) + 1)[1:int(words[6]) + 1]
    return words[1], words[2], words[3], [c.decode() for c in checks]


def read_vectors(folder):
    out = {}
    for path in sorted(Path(folder).glob("*.sgv.gz")):
        for vector in split(gzip.decompress(path.read_bytes())):
            out.setdefault(head(vector)[0], []).append(vector)
    return out


def write_vectors(folder, vectors):
    """Writes all files anew; returns their size together."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    groups, total = {}, 0
    for name in sorted(vectors):
        if vectors[name]:
            groups.setdefault(group_of(name), []).extend(vectors[name])
    for old in folder.glob("*.sgv.gz"):
        if old.name.split(".")[0] not in groups:
            old.unlink()
    for group, list_ in groups.items():
        packed = gzip.compress(b"".join(list_), 9, mtime=0)
        path = folder / f"{group}.sgv.gz"
        if not path.exists() or path.read_bytes() != packed:
            path.write_bytes(packed)
        total += len(packed)
    return total


ABSENT = "# What OpInfo names and no vector can be of: OP DTYPE reason. `PyTorch: ...` is what it answers to every call that was tried.\n"


def write_absent(path, said, missing):
    """Of `missing` pairs the reasons: what PyTorch `said`, or what stands in the file already."""
    lines = path.read_text().splitlines() if path.exists() else []
    old = {tuple(line.split(None, 2)[:2]): line.split(None, 2)[2] for line in lines if not line.startswith("#")}
    reasons = {pair: f"PyTorch: {said[pair]}" if pair in said else old.get(pair) for pair in sorted(missing)}
    path.write_text(ABSENT + "".join(f"{op} {dtype} {why}\n" for (op, dtype), why in reasons.items() if why))
