"""Makes the Python of the gRPC services from ``proto/``. With ``--check`` it only says whether it is up to date."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "src" / "fairlane" / "wire" / "grpc"
HEAD = '"""The messages and stubs of the gRPC services; made from ``proto/`` by ``tools/make_grpc.py``."""\n'


def made() -> dict[str, str]:
    """Return the text of every file to be made, by name."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--python_out={folder}", f"--pyi_out={folder}", f"--grpc_python_out={folder}"]
        sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
        includes = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *includes, *outputs, *sources]) != 0:
            raise SystemExit("protoc can't read the files under proto/.")
        texts = {path.name: _at_home(path.read_text(encoding="utf-8")) for path in Path(folder).rglob("*.py*")}
    without_services = {name for name in texts if name.endswith("_grpc.py") and "Servicer" not in texts[name]}
    return {"__init__.py": HEAD} | {name: text for name, text in sorted(texts.items()) if name not in without_services}


def _at_home(text: str) -> str:
    """Let generated modules find each other where they live."""
    return re.sub(r"^from fairlane\.v1 import", "from fairlane.wire.grpc import", text, flags=re.MULTILINE)


def main() -> int:
    """Write them, or check them."""
    texts = made()
    if "--check" not in sys.argv:
        TARGET.mkdir(exist_ok=True)
        for name, text in texts.items():
            (TARGET / name).write_text(text, encoding="utf-8")
        return 0
    there = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py*")}
    stale = sorted(name for name in texts.keys() | there.keys() if texts.get(name) != there.get(name))
    if stale:
        print(f"{', '.join(stale)}: not what proto/ makes; run tools/make_grpc.py.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
