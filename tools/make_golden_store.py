"""Makes the golden store: a small store of this format with everything in it that a store can hold.

``python tools/make_golden_store.py`` writes ``tests/golden/store-1.tar.gz`` and ``tests/golden/store-1.json``. The
second says what a reader of the first must see. It is written by hand in ``golden/``, from what was asked of the
broker; only ids, fencing tokens and etags are taken from its answers. Every later version must see the same, so make it
anew only with a new format version, under a new name.

Two eras: what is left of the first is known to recovery only through a baseline and carried messages, since the journal
of that time is trimmed; the second is read as it was written.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from golden.eras import Maker
from golden.picture import picture_of

from fairlane.adapters.folder.mark import ROCKSDB

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
SIZE_MAX = 200_000


def main() -> None:
    """Make the store and the picture."""
    with tempfile.TemporaryDirectory() as scratch:
        maker = Maker(Path(scratch) / "store")
        archive = maker.make()
    if len(archive) > SIZE_MAX:
        raise SystemExit(f"The archive has {len(archive)} bytes, more than {SIZE_MAX}.")
    GOLDEN.mkdir(exist_ok=True)
    name = f"store-{ROCKSDB.version}"
    (GOLDEN / f"{name}.tar.gz").write_bytes(archive)
    (GOLDEN / f"{name}.json").write_text(json.dumps(picture_of(maker), indent=1, sort_keys=True) + "\n")
    print(f"tests/golden/{name}: {len(archive)} bytes, {len(maker.ids)} messages enqueued")


if __name__ == "__main__":
    main()
