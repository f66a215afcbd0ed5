import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, duration, number, plural, range } from "../../widgets/front/words.js";

test("numbers have separators, and nouns their plural", () => {
  assert.equal(number(1234567), "1,234,567");
  assert.equal(plural(1, "change"), "1 change");
  assert.equal(plural(2000, "change"), "2,000 changes");
});

test("a range counts from one", () => {
  assert.equal(range({ offset: 10, rows: 10, total: 1234 }), "11–20 of 1,234");
});

test("an age is given in the largest unit of which two have passed", () => {
  const ages = [-5, 0, 119.9, 120, 7199, 7200, 172_799, 172_800].map(ago);
  const expected = ["0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"];
  assert.deepEqual(
    ages,
    expected.map((age) => `${age} ago`),
  );
});

test("a duration has the unit that fits it, on both sides of zero", () => {
  assert.deepEqual([0, 0.0004, 0.9994, 0.9995, 59.94].map(duration), ["0 ms", "0 ms", "999 ms", "1.0 s", "59.9 s"]);
  assert.deepEqual([59.95, 3599.4, 3599.5, 172_799, 172_800].map(duration), [
    "1 min 0 s",
    "59 min 59 s",
    "1 h 0 min",
    "47 h 59 min",
    "2 days",
  ]);
  assert.equal(duration(-90), "−1 min 30 s");
});
