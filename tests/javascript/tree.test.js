import assert from "node:assert/strict";
import { test } from "node:test";
import { sparkline, sparklinePath, sparklinePoints } from "../../widgets/front/sparkline.js";
import { neighbour, treeLayout } from "../../widgets/front/tree.js";

const lane = (parent, epochs, kind = "epoch") => ({
  parent,
  dots: epochs.map((epoch, i) => [epoch, i === 0 ? kind : "epoch"]),
});

test("lanes are lines, and a branch is joined to its parent where it begins", () => {
  const tree = { first: 10, last: 13, lanes: [lane(null, [10, 11, 12]), lane(0, [12, 13], "start"), lane(1, [])] };
  const { width, height, lines } = treeLayout(tree);
  assert.deepEqual([width, height], [4 * 26, 3 * 30 + 20]);
  assert.deepEqual(lines, ["M13 15H65", "M65 45H91", "M65 15V45"]);
});

test("a branch whose beginning is not in sight is not joined to its parent", () => {
  const tree = { first: 10, last: 11, lanes: [lane(null, [10, 11]), lane(0, [10, 11])] };
  assert.equal(treeLayout(tree).lines.length, 2);
});

test("every epoch is numbered while there are few, and every fifth otherwise", () => {
  const numbers = (first, last) => treeLayout({ first, last, lanes: [] }).numbers;
  assert.deepEqual(numbers(7, 9), [7, 8, 9]);
  assert.deepEqual(numbers(7, 21), [10, 15, 20]);
});

test("arrow keys lead along a branch and to the nearest epoch of the next one that has dots", () => {
  const lanes = [[1, 2, 3, 4], [], [3, 9]];
  assert.deepEqual(neighbour(lanes, 0, 1, "ArrowRight"), [0, 2]);
  assert.deepEqual(neighbour(lanes, 0, 1, "ArrowLeft"), [0, 0]);
  assert.deepEqual(neighbour(lanes, 0, 1, "Home"), [0, 0]);
  assert.deepEqual(neighbour(lanes, 0, 1, "End"), [0, 3]);
  assert.deepEqual(neighbour(lanes, 0, 3, "ArrowDown"), [2, 0]);
  assert.deepEqual(neighbour(lanes, 2, 1, "ArrowUp"), [0, 3]);
});

test("at an edge an arrow key stays, and any other key does nothing", () => {
  const lanes = [[1, 2], [2]];
  assert.deepEqual(neighbour(lanes, 0, 1, "ArrowRight"), [0, 1]);
  assert.deepEqual(neighbour(lanes, 0, 0, "ArrowLeft"), [0, 0]);
  assert.deepEqual(neighbour(lanes, 0, 0, "ArrowUp"), [0, 0]);
  assert.deepEqual(neighbour(lanes, 1, 0, "ArrowDown"), [1, 0]);
  assert.equal(neighbour(lanes, 0, 0, "a"), null);
});

test("a sparkline spans its box, breaks where a value is missing, and is flat if nothing changed", () => {
  assert.deepEqual(sparklinePoints([0, null, 10]), [[2, 18], null, [78, 2]]);
  assert.equal(sparklinePath(sparklinePoints([0, 5, null, 10, 10])), "M2.0 18.0L21.0 10.0M59.0 2.0L78.0 2.0");
  assert.equal(sparklinePath(sparklinePoints([7, 7])), "M2.0 10.0L78.0 10.0");
});

test("fewer than two values make no sparkline", () => {
  assert.equal(sparkline([null, 3], "x"), "");
});
