import assert from "node:assert/strict";
import { test } from "node:test";
import { exampleColumn, runningLine } from "../../widgets/front/debugger.js";
import { nextOrder, whyNoDifferences } from "../../widgets/front/diff_rows.js";
import { summaryOf } from "../../widgets/front/key_history.js";
import { tableNames } from "../../widgets/front/overview.js";
import { hintFor, titleOf } from "../../widgets/front/page.js";
import { isLight, parametersOf } from "../../widgets/front/plots.js";
import { columnsShown } from "../../widgets/front/row_controls.js";
import { whyEmpty } from "../../widgets/front/rows.js";
import { measured, pointNotes, pointsOf, selectionOf, settingsIn } from "../../widgets/front/timeline.js";
import { lengthOf } from "../../widgets/front/whole_value.js";
import { statusOf, whyButton } from "../../widgets/front/why.js";

test("state browser: an empty table says why, and a wide one which columns it shows", () => {
  assert.equal(whyEmpty({ selection: { text: "x", rows: "all" } }), "No row contains that text.");
  assert.equal(whyEmpty({ selection: { where: "a > 1", rows: "all" } }), "No row matches the condition.");
  const invalid = { selection: { where: "a >", rows: "changed" }, problem: "syntax error" };
  assert.equal(whyEmpty(invalid), "Nothing changed in this epoch.");
  assert.equal(whyEmpty({ selection: { rows: "all" } }), "The state is empty at this epoch.");
  const columns = { first: 0, shown: 5, found: 5, total: 2000, named: "" };
  assert.equal(columnsShown(columns), "Columns 1–5 of 2,000");
  assert.equal(columnsShown({ ...columns, named: "x" }), "Columns 1–5 of 5 that match, 2,000 in all");
  assert.equal(columnsShown({ ...columns, shown: 0, found: 0, named: "x" }), "Columns 0 that match, 2,000 in all");
});

test("state browser: a value that is cut says how much of it is shown", () => {
  assert.equal(lengthOf("a", 1), "1 character");
  assert.equal(lengthOf("ab", 5000), "the first 2 of 5,000 characters");
});

test("differences: a heading sorts by movement, ascending, descending, and then by key again", () => {
  const column = { name: "n", moves: true, ratios: true };
  let selection = { order_by: null, by_size: false, relative: false, descending: false };
  const orders = [];
  for (let click = 0; click < 5; click++) {
    const { column: name, size = false, relative = false, descending = false } = nextOrder(column, selection);
    orders.push([name, size, relative, descending]);
    selection = { order_by: name, by_size: size, relative, descending };
  }
  assert.deepEqual(orders, [
    ["n", true, true, true],
    ["n", true, false, true],
    ["n", false, false, false],
    ["n", false, false, true],
    [null, false, false, false],
  ]);
});

test("differences: times have no relative changes", () => {
  const selection = { order_by: null, by_size: false, relative: false, descending: false };
  const first = nextOrder({ name: "t", moves: true, ratios: false }, selection);
  assert.deepEqual(first, { column: "t", size: true, relative: false, descending: true });
});

test("differences: a column whose values cannot be subtracted does not sort by movement", () => {
  const selection = { order_by: "other", by_size: true, relative: true, descending: true };
  const first = nextOrder({ name: "s", moves: false, ratios: false }, selection);
  assert.deepEqual(first, { column: "s", size: false, relative: false, descending: false });
});

test("differences: an epoch differs from itself only on another branch", () => {
  const view = { selection: { text: "" }, sides: [{ epoch: 1 }, { epoch: 1 }] };
  assert.match(whyNoDifferences(view), /same epoch/);
  assert.match(whyNoDifferences({ ...view, others: [[0, 1]] }), /^No key differs/);
  assert.match(whyNoDifferences({ ...view, selection: { text: "x" } }), /contains that text/);
});

test("key history: a key whose newest change removed it is absent", () => {
  assert.equal(summaryOf({ total: 0, rows: [], offset: 0 }), "");
  assert.equal(summaryOf({ total: 1, rows: [{ mark: "+" }], offset: 0 }), "1 change");
  assert.equal(summaryOf({ total: 2, rows: [{ mark: "−" }], offset: 0 }), "2 changes · currently absent");
  assert.equal(summaryOf({ total: 30, rows: [{ mark: "−" }], offset: 10 }), "30 changes");
});

test("why: a change offers its reason only where that can be found", () => {
  assert.equal(whyButton({ why_not: "No plan." }, 2), "", "the plan is not known");
  assert.equal(whyButton({ why_not: null }, 2), "", "two branches, or a saved file");
  assert.equal(whyButton({}, 2), "", "another view that shows differences");
  assert.equal(whyButton({ why_not: "" }, null), "", "the epochs of the changes are still looked for");
  assert.match(statusOf({ busy: true, summary: "" }), /^Reading the input/);
  assert.equal(statusOf({ busy: false, summary: "3 input rows fell on it" }), "3 input rows fell on it");
});

test("overview: a query with many state tables names two of them", () => {
  assert.equal(tableNames(["a", "b", "c"]), "a, b, c");
  assert.equal(tableNames(["a", "b", "c", "d"]), "a, b, 2 more");
});

test("page: the title names what is shown, and a page without a query says what to do", () => {
  assert.equal(titleOf({ query: "q", epoch: 0 }), "q · epoch 0 · streamstate");
  assert.equal(titleOf({ query: "", epoch: null }), "streamstate");
  assert.equal(hintFor({ queries: [{}], query: "q" }), "");
  assert.equal(hintFor({ queries: [{}], query: "" }), "Choose a query.");
  assert.match(hintFor({ queries: [] }), /^This store does not contain any queries yet/);
});

test("timeline: points arrive as columns", () => {
  assert.deepEqual(pointsOf({ first: [0, 2], last: [1, 2] }), [
    { first: 0, last: 1 },
    { first: 2, last: 2 },
  ]);
});

test("timeline: a point says which epochs it stands for", () => {
  const point = { first: 3, last: 5, captured: true, gaps: 1, committed: "12:00", run: null };
  assert.deepEqual(pointNotes(point), ["epochs 3–5", "1 of them gaps", "committed 12:00"]);
  assert.match(pointNotes({ first: 4, last: 4, captured: false })[1], /^a gap/);
});

test("timeline: a point says what shared variables were set to in its epochs", () => {
  const marks = [
    { kind: "restart", epoch: 3.5 },
    { kind: "variable", epoch: 3.5, text: "limit = 45" },
    { kind: "variable", epoch: 5.5, text: "limit = 60" },
  ];
  assert.deepEqual(settingsIn(marks, { first: 4, last: 4 }), ["limit = 45"]);
  assert.deepEqual(settingsIn(marks, { first: 3, last: 6 }), ["limit = 45", "limit = 60"]);
  const point = { first: 4, last: 4, captured: true, committed: "12:00" };
  assert.deepEqual(pointNotes(point, ["limit = 45"]), ["epoch 4", "limit = 45", "committed 12:00"]);
});

test("timeline: one typed epoch selects it, two an interval, and none clears the selection", () => {
  assert.deepEqual(selectionOf(["3", " 5 "]), ["between", [3, 5]]);
  assert.deepEqual(selectionOf(["", "5"]), ["epoch", 5]);
  assert.deepEqual(selectionOf(["", " "]), ["clear"]);
  assert.deepEqual(selectionOf(["1.5", ""]), ["clear"]);
});

test("timeline: a measure is a number of rows or a duration, and may be missing", () => {
  assert.deepEqual(
    [measured(1200, "rows"), measured(1200, "seconds"), measured(null, "rows")],
    ["1,200", "20 min 0 s", "–"],
  );
});

test("debugger: examples name a column that can be compared, quoted if SQL needs it", () => {
  const diff = (...names) => ({ columns: names.map((name) => ({ name, moves: name !== "key" })) });
  assert.equal(exampleColumn(diff("key", "total")), "total");
  assert.equal(exampleColumn(diff("key", "a b")), '"a b"');
  assert.equal(exampleColumn(diff("key")), null);
  assert.equal(exampleColumn(null), null);
});

test("debugger: a run says what it does and whether it is stopping", () => {
  assert.equal(runningLine({ what: "5 steps", line: "", interrupting: false }), "5 steps…");
  const stopping = { what: "5 steps", line: "2 of 5", interrupting: true };
  assert.equal(runningLine(stopping), "5 steps: 2 of 5 · stopping as soon as possible");
});

test("plots: the parameters of all layers are listened to", () => {
  const spec = { params: [{ name: "a" }], layer: [{ params: [{ name: "b" }] }, {}] };
  assert.deepEqual(parametersOf(spec), ["a", "b"]);
  assert.deepEqual(parametersOf({}), []);
});

test("plots: light text means a dark theme", () => {
  assert.ok(isLight("rgb(230, 230, 230)"));
  assert.ok(!isLight("rgba(0, 0, 0, 0.87)"));
  assert.ok(!isLight(""), "a view that is no longer in the page has no colour");
});
