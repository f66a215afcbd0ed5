import assert from "node:assert/strict";
import { test } from "node:test";
import { requests } from "../../widgets/front/screen.js";

test("actions are numbered, and name the drawing they refer to", () => {
  const sent = [];
  const { act } = requests((content) => sent.push(content));
  act("epoch", 4, 17);
  act("follow", undefined, 18);
  assert.deepEqual(sent, [
    { do: "epoch", value: 4, view: 17, n: 1 },
    { do: "follow", value: undefined, view: 18, n: 2 },
  ]);
});

test("everything is answered once a drawing has handled the newest action", () => {
  const numbered = requests(() => {});
  assert.ok(numbered.answered(), "nothing was asked");
  numbered.act("epoch", 1, 1);
  numbered.act("epoch", 2, 1);
  numbered.drawn({ handled: 1 });
  assert.ok(!numbered.answered());
  numbered.drawn({ handled: 2 });
  assert.ok(numbered.answered());
});
