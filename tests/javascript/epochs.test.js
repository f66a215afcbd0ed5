import assert from "node:assert/strict";
import { test } from "node:test";
import { interval, nearestPoint, placeOn } from "../../widgets/front/epoch_surface.js";
import { at, count, positionOf } from "../../widgets/front/epochs.js";

const RUNS = [
  [3, 5],
  [9, 9],
  [20, 21],
];
const EPOCHS = [3, 4, 5, 9, 20, 21];

test("positions count the captured epochs and skip the gaps", () => {
  assert.equal(count(RUNS), EPOCHS.length);
  assert.deepEqual(
    EPOCHS.map((_, position) => at(RUNS, position)),
    EPOCHS,
  );
  assert.deepEqual(
    EPOCHS.map((epoch) => positionOf(RUNS, epoch)),
    [0, 1, 2, 3, 4, 5],
  );
});

test("a position beyond the end has no epoch, and a newer epoch has the last position", () => {
  assert.equal(at(RUNS, EPOCHS.length), undefined);
  assert.equal(positionOf(RUNS, 99), EPOCHS.length - 1);
});

test("an epoch outside the axis is at its nearer end", () => {
  const axis = { from: 10, to: 20 };
  assert.deepEqual(
    [5, 10, 15, 20, 99].map((epoch) => placeOn(axis, epoch)),
    [0, 0, 0.5, 1, 1],
  );
});

test("the nearest point is found among points that span several epochs", () => {
  const points = [
    { first: 0, last: 3 },
    { first: 4, last: 7 },
    { first: 20, last: 20 },
  ];
  const nearest = [-5, 2, 3.4, 3.6, 13, 14, 99].map((epoch) => points.indexOf(nearestPoint(points, epoch)));
  assert.deepEqual(nearest, [0, 0, 0, 1, 1, 2, 2]);
});

test("an interval covers both of its ends, in whichever direction it was dragged", () => {
  const [early, late] = [
    { first: 2, last: 4 },
    { first: 8, last: 9 },
  ];
  assert.deepEqual(interval(early, late), [2, 9]);
  assert.deepEqual(interval(late, early), [2, 9]);
});
