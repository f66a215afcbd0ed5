// Epochs come as inclusive runs: [[0, 16], [20, 39]]. A slider counts positions, without the gaps.
export const count = (runs) => runs.reduce((sum, [from, to]) => sum + to - from + 1, 0);
export function at(runs, position) {
  for (const [from, to] of runs) {
    if (position <= to - from) return from + position;
    position -= to - from + 1;
  }
}
export function positionOf(runs, epoch) {
  let before = 0;
  for (const [from, to] of runs) {
    if (epoch <= to) return before + epoch - from;
    before += to - from + 1;
  }
  return before - 1;
}
