// Captured epochs come as inclusive runs: [[0, 16], [20, 39]]. A slider counts positions, which skip the gaps.

export const count = (runs) => runs.reduce((sum, [from, to]) => sum + to - from + 1, 0);

// The epoch at a position.
export function at(runs, position) {
  let left = position;
  for (const [from, to] of runs) {
    if (left <= to - from) return from + left;
    left -= to - from + 1;
  }
}

// The position of an epoch; the last one if the epoch is newer than all that were captured.
export function positionOf(runs, epoch) {
  let before = 0;
  for (const [from, to] of runs) {
    if (epoch <= to) return before + epoch - from;
    before += to - from + 1;
  }
  return before - 1;
}
