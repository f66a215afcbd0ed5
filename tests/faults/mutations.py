"""Mutate single files of a recorded checkpoint, and use each in every way that needs no Spark.

``python -m faults.mutations CHECKPOINT COUNT SEED FOLDER`` prints as JSON how often each outcome came, and what was
wrong: an error that is not one of streamstate's, a wrong row although the file has a checksum, or a call that hangs.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

SECONDS = 30.0
"""The longest that one use may take; a whole checkpoint takes a fraction of a second."""
Rows = dict[int, dict[str, Any]]


def flipped(content: bytearray, random: Random) -> bytearray:
    """Some bits are another."""
    for _ in range(random.choice([1, 1, 2, 16])):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content


def cut(content: bytearray, random: Random) -> bytearray:
    """The end is missing."""
    return content[: random.randrange(len(content))]


def without_a_part(content: bytearray, random: Random) -> bytearray:
    """Something in the middle is missing."""
    first = random.randrange(len(content))
    return content[:first] + content[first + random.randrange(1, 64) :]


def with_more(content: bytearray, random: Random) -> bytearray:
    """Something is in between."""
    at = random.randrange(len(content))
    return content[:at] + bytearray(random.randbytes(random.randrange(1, 64))) + content[at:]


def overwritten(content: bytearray, random: Random) -> bytearray:
    """A part has extreme values."""
    at, size = random.randrange(len(content)), random.choice([1, 2, 4, 8, 64])
    content[at : at + size] = bytes([random.choice([0, 255, 127, 48, 57])]) * size
    return content


def with_a_large_number(content: bytearray, random: Random) -> bytearray:
    """A number in a text is another."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if places:
        at = random.choice(places)
        content[at : at + 1] = random.choice([b"-1", b"9999999999999999999", b"0", b"1e9", b"null"])
    return content


MUTATIONS: list[Callable[[bytearray, Random], bytearray]] = [
    flipped, cut, without_a_part, with_more, overwritten, with_a_large_number,
]  # fmt: skip


def mutate(folder: Path, random: Random) -> tuple[Path, str, bool]:
    """Change one file; returns it, how, and whether a checksum shows it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    file, how = random.choice(files), random.choice(MUTATIONS)
    before = file.read_bytes()
    file.write_bytes(how(bytearray(before), random))
    checked = file.suffix == ".crc" or file.with_name(f".{file.name}.crc").exists() or file.read_bytes() == before
    if checked and file.suffix != ".crc" and random.random() < 1 / 3:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        checked = file.read_bytes() == before
    return file.relative_to(folder), how.__name__, checked


def rows_of(store: Path) -> Rows:
    """All rows of a store, by epoch and table."""
    import streamstate as ss

    history = ss.open_store(store)["q"]
    return {
        epoch: {name: history.at(epoch).table(name).to_arrow().to_pylist() for name in history.at(epoch).tables()}
        for epoch in history.captured()
    }


def captured(checkpoint: Path, folder: Path) -> Rows:
    """The rows that a capture takes."""
    import streamstate as ss

    ss.Checkpoint(checkpoint).capture(folder / "store", "q")
    return rows_of(folder / "store")


def uses(checkpoint: Path, folder: Path) -> dict[str, Callable[[], Rows | None]]:
    """The uses of a checkpoint without Spark."""
    import streamstate as ss
    from streamstate.operations.checkup import examine

    def examined() -> None:
        str(examine(checkpoint))

    def forked() -> None:
        ss.Checkpoint(checkpoint).fork(folder / "fork", at=2)

    return {"doctor": examined, "capture": lambda: captured(checkpoint, folder), "fork": forked}


def run(original: Path, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Mutate a checkpoint so often, and use each."""
    from streamstate.errors import StreamStateError

    random, outcomes, wrong = Random(seed), Counter[str](), list[str]()
    right = captured(original, folder / "right")
    for number in range(count):
        place = folder / str(number)
        shutil.copytree(original, place / "checkpoint")
        file, how, checked = mutate(place / "checkpoint", random)
        for name, use in uses(place / "checkpoint", place).items():
            began = time.monotonic()
            try:
                found = use()
                same = found is None or all(rows == right.get(epoch) for epoch, rows in found.items())
                outcomes[f"{name}: {'done' if same else 'other rows, without a checksum'}"] += 1
                if not same and checked:
                    wrong.append(f"{number}: {name} of {file}, {how}: other rows")
            except StreamStateError:
                outcomes[f"{name}: refused"] += 1
                if name == "capture" and (place / "store").exists():
                    partly = rows_of(place / "store")
                    if checked and any(rows != right.get(epoch) for epoch, rows in partly.items()):
                        wrong.append(f"{number}: capture of {file}, {how}: other rows before the error")
            except BaseException:  # noqa: BLE001 (whatever it is, it is wrong)
                wrong.append(f"{number}: {name} of {file}, {how}: {traceback.format_exc()[-1500:]}")
            if (took := time.monotonic() - began) > SECONDS:
                wrong.append(f"{number}: {name} of {file}, {how}: {took:.0f} s")
        shutil.rmtree(place)
    return {"outcomes": dict(sorted(outcomes.items())), "wrong": wrong}


def without_spark(*_: object) -> None:
    """Nothing is left to Spark."""
    from streamstate.errors import JavaNotFoundError

    raise JavaNotFoundError("Here, Spark is not started.")


if __name__ == "__main__":
    from streamstate.snapshots.spark import session

    session._start = without_spark  # type: ignore[assignment]
    checkpoint, count, seed, folder = sys.argv[1:]
    print(json.dumps(run(Path(checkpoint), int(count), int(seed), Path(folder))))  # noqa: T201 (read by the test)
