"""Changes the inputs of a fuzz target, which are packed in tests/fuzz/corpus/TARGET.tar.gz:

    python3 tests/fuzz/corpus.py add TARGET FILE ...      # replaces inputs of the same name
    python3 tests/fuzz/corpus.py remove TARGET NAME ...

`tar -tzf` lists the inputs, `tar -xzf` unpacks them. The same inputs always give the same archive.
"""
import gzip
import io
import pathlib
import sys
import tarfile


def read(archive):
    with tarfile.open(archive, "r:gz") as packed:
        return {member.name: packed.extractfile(member).read() for member in packed}


def write(archive, inputs):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for name, data in sorted(inputs.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    archive.write_bytes(gzip.compress(plain.getvalue(), 9, mtime=0))


def main(arguments):
    if len(arguments) < 3 or arguments[0] not in ("add", "remove"):
        sys.exit(__doc__)
    command, target, *files = arguments
    archive = pathlib.Path(__file__).resolve().parent / "corpus" / f"{target}.tar.gz"
    inputs = read(archive) if archive.exists() else {}
    for file in map(pathlib.Path, files):
        if command == "add":
            inputs[file.name] = file.read_bytes()
        elif inputs.pop(file.name, None) is None:
            sys.exit(f"{archive} has no input '{file.name}'")
    write(archive, inputs)


if __name__ == "__main__":
    main(sys.argv[1:])
