"""``%state``: a query's state as a browser, and as data at an epoch, between two, or of one key."""

from __future__ import annotations

import argparse
import importlib
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from streamstate.magics.arguments import MagicParser, VerbParser, add_output, add_store, count, past_epoch
from streamstate.magics.keys import typed_key
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook
from streamstate.magics.reading import reading
from streamstate.magics.state_verbs import VERBS
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import History, Snapshot, StateTable, Store

__all__ = ["STATE"]

# Each asks another question: what one of them is about, the others cannot narrow.
_ALONE = {
    "diff": ("at", "as_of", "key", "where", "top", "by", "history", "timeline", "dashboard"),
    "history": ("at", "as_of", "where", "top", "by", "timeline", "dashboard"),
    "key": ("where", "top", "by", "timeline", "dashboard"),
    "as_of": ("at", "timeline", "dashboard"),
    "timeline": ("at", "where", "top", "by", "dashboard"),
    "dashboard": ("at", "where", "top", "by"),
}

_QUESTIONS = (*_ALONE, "at", "where", "top", "by")


def _parser() -> MagicParser:
    parser = VerbParser(
        "%state",
        "Look into the state of a query. Without options: a browser with a slider over the epochs; without a name:\n"
        "the store's queries at a glance. With options, the value is data: a DataFrame, with --key one row as a dict.",
        verbs=[verb.parsed for verb in VERBS],
        epilog="Examples:\n"
        "  %state\n"
        "  %state delays\n"
        "  %state delays --at 12 --top 5 --by count\n"
        "  %state delays --where \"carrier = 'UA' and count > 10\"\n"
        "  %state delays --key carrier=UA --key origin=JFK --history\n"
        "  %state rotations.op0_legs --diff live-10 live -o changes\n"
        "  %state delays --timeline\n"
        '  late = %state delays --at 12 --where "max > 60"',
    )
    parser.add(
        "relation", metavar="NAME[.TABLE]", nargs="?", completes="relation", help="a query, or one of its tables"
    )
    parser.add(
        "--at",
        metavar="EPOCH",
        type=past_epoch,
        completes="epoch",
        help="the state at an epoch: 12, live-10 (or newest)",
    )
    parser.add(
        "--as-of",
        metavar="TIME",
        completes="time",
        help="the state at a time that names its zone, such as 2013-01-01T12:00+01:00",
    )
    parser.add("--key", metavar="COL=VALUE", action="append", completes="key", help="one key; once for each key column")
    parser.add("--where", metavar="SQL", completes="where", help="only rows for which this holds")
    parser.add("--top", metavar="N", type=count, help="the N largest by a column")
    parser.add("--by", metavar="COL", completes="column", help="the column for --top")
    parser.add(
        "--diff", nargs=2, metavar=("A", "B"), type=past_epoch, completes="epoch", help="what changed from epoch A to B"
    )
    parser.add("--history", action="store_true", help="every change of the key given with --key")
    parser.add("--timeline", action="store_true", help="a chart of all epochs: input, state, changes, duration, lag")
    parser.add(
        "--dashboard", action="store_true", help="the query's operators with rows, sizes, skew, heavy keys, rates"
    )
    add_store(parser)
    add_output(parser, "keep the value, whole, in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, _cell: str) -> Any:
    __tracebackhide__ = True
    if args.verb is not None:
        return next(verb for verb in VERBS if verb.name == args.verb).run(notebook, args)
    _check_combination(args)
    moment = None if args.as_of is None else aware_time(args.as_of)
    query, _, table = (args.relation or "").partition(".")
    store = notebook.open(args.store, query or None, args.storage_options)
    with reading(notebook.shell):
        value = _answer(notebook, args, store[query], table or None, moment) if args.relation else _overview(store)
    notebook.assign(args.output, value)
    return value


def _overview(store: Store) -> Any:
    """All queries of a store."""
    return _views().StoreOverview(store)


def _answer(
    notebook: Notebook, args: argparse.Namespace, history: History, table: str | None, moment: datetime | None
) -> Any:
    """What the line asked for."""
    if args.diff:
        before, after = args.diff
        return history.diff(before, after, table=table)
    if args.history:
        state = history.live().table(table)
        return history.key_history(state.name, **typed_key(state, args.key))
    if not (args.at is not None or moment or args.key or args.where or args.top or args.by):
        return _view(notebook, args, history, table)
    state = _snapshot(history, args.at, moment).table(table)
    return _one_key(state, args.key) if args.key else _rows(notebook, args, state)


def _view(notebook: Notebook, args: argparse.Namespace, history: History, table: str | None) -> Any:
    """Something to look at."""
    views = _views()
    if args.timeline:
        return views.Timeline(history)
    if args.dashboard:
        return views.QueryDashboard(history, notebook.running.get(history.name))
    return views.StateBrowser(history, table)


def _views() -> Any:
    """The package of what can be looked at, which is slow to load."""
    return importlib.import_module("streamstate.widgets")


def _snapshot(history: History, at: int | str | None, moment: datetime | None) -> Snapshot:
    if moment is not None:
        return history.at(timestamp=moment)
    return history.live() if at is None else history.at(at)


def _one_key(state: StateTable, given: list[str]) -> dict[str, Any] | None:
    found = state.lookup(**typed_key(state, given))
    if found is None:
        print(f"{state.name} has no row with {', '.join(given)} at epoch {state.epoch}.")
    return found


def _rows(notebook: Notebook, args: argparse.Namespace, state: StateTable) -> pd.DataFrame:
    """A page of rows, cut where it is only shown, and saying so."""
    total = state.count(where=args.where)
    limit = args.top or (max(total, 1) if args.output else notebook.settings.rows)
    page = state.page(limit=limit, order_by=args.by, descending=args.by is not None, where=args.where)
    if len(page) < total and not args.top:
        print(
            f"{len(page)} of {total:,} rows of {state.name} at epoch {state.epoch}; -o VAR keeps all of them, "
            "%config StreamState.rows = N shows more."
        )
    return page


def _check_combination(args: argparse.Namespace) -> None:
    """Raise where options exclude or need each other."""
    given = {name for name, value in vars(args).items() if value not in (None, False)}
    asked = [_flag(name) for name in _QUESTIONS if name in given]
    if args.relation is None and asked:
        raise InvalidArgumentError(f"{asked[0]} is of one query: %state NAME {asked[0]} … Without NAME: all queries.")
    for option, others in _ALONE.items():
        clash = [_flag(other) for other in others if other in given]
        if option in given and clash:
            raise InvalidArgumentError(f"{_flag(option)} cannot be combined with {', '.join(clash)}. Use one of them.")
    if "history" in given and "key" not in given:
        raise InvalidArgumentError("--history is that of one key: add --key COLUMN=VALUE for each key column.")
    if "top" in given and "by" not in given:
        raise InvalidArgumentError("--top needs the column to sort by: --top 10 --by COLUMN.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def aware_time(text: str) -> datetime:
    """A time with its zone: ISO 8601 with an offset, or followed by the zone's name.

    Raises:
        InvalidArgumentError: it is no time.
        NaiveTimestampError: it has no zone.
    """
    from streamstate.state_inspect.timestamps import aware

    written, _, zone = text.strip().rpartition(" ")
    if not written or not zone[:1].isalpha():
        return aware(text)
    try:
        return datetime.fromisoformat(written).replace(tzinfo=ZoneInfo(zone))
    except (ValueError, LookupError, OSError) as error:  # ZoneInfo looks for a file of the zone's name
        raise InvalidArgumentError(
            f"--as-of {text!r} is not a time: {error}.\n"
            "Write it like 2013-01-01T12:00+01:00 or '2013-01-01 12:00 Europe/Rome'."
        ) from None


STATE = Magic("line", "state", _parser(), _run)
