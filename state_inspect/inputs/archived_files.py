"""Files that Spark has moved to the archive of a file source (its options ``cleanSource`` and ``sourceArchiveDir``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from streamstate.snapshots.spark.catalyst import scala_object


@dataclass(frozen=True)
class Archive:
    """The archive of a file source, which moves files that it has read to the same path below another folder."""

    folder: str
    source: Any
    """Spark's ``DataSource``."""
    _jvm: Any

    @classmethod
    def of(cls, jvm: Any, source: Any) -> Archive | None:
        """Return the archive of a source; None if it has none."""
        folder = _options(jvm, source).get("sourceArchiveDir")
        return cls(str(folder.get()).rstrip("/"), source, jvm) if folder.isDefined() else None

    def place(self, path: str) -> str:
        """Return the path of a moved file; ``path`` is its URI in the source's log."""
        return self.folder + unquote(urlsplit(path).path)

    def uri(self, path: str) -> str:
        """Return the same, as the source's log writes it."""
        return str(self._jvm.org.apache.hadoop.fs.Path(self.place(path)).toUri().toString())

    def reader(self) -> Any:
        """Return the source with the archive as its folder, so that paths of moved files have its partitions."""
        options = _options(self._jvm, self.source)
        folder = self._jvm.org.apache.hadoop.fs.Path(str(options.get("path").get()))
        conf = self.source.sparkSession().sessionState().newHadoopConf()
        inside = folder.getFileSystem(conf).makeQualified(folder).toUri().getPath()
        for name in ("cleanSource", "sourceArchiveDir"):  # Spark refuses an archive that holds the source's folder
            options = options.removed(name)
        fields = [getattr(self.source, f"copy$default${at + 1}")() for at in range(self.source.productArity())]
        names = [str(name) for name in _names(self.source)]
        fields[names.index("options")] = options.updated("path", self.folder + str(inside))
        return self.source.copy(*fields)

    def divided(self, log: Mapping[str, str], moved: set[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return a source's log without the moved files, and one with only these, at their new places."""
        stayed = {
            name: "\n".join(_lines(text, lambda path: None if path in moved else path)) for name, text in log.items()
        }
        own = {
            name: "\n".join(_lines(text, lambda path: self.uri(path) if path in moved else None))
            for name, text in log.items()
        }
        return stayed, own


def _options(jvm: Any, source: Any) -> Any:
    return scala_object(jvm, "org.apache.spark.sql.catalyst.util.CaseInsensitiveMap").apply(source.options())


def _names(source: Any) -> Iterator[Any]:
    names = source.productElementNames()
    while names.hasNext():
        yield names.next()


def _lines(text: str, place: Callable[[str], str | None]) -> Iterator[str]:
    """Yield a log's lines, with files at other places; those that have none are left out."""
    for line in text.splitlines():
        if not line.startswith("{"):
            yield line
            continue
        entry = json.loads(line)
        if (path := place(str(entry["path"]))) is not None:
            yield json.dumps(entry | {"path": path}, separators=(",", ":"))
