// Numbers and times as text. Nothing here needs a page.

export const number = (value) => value.toLocaleString("en-US");

export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// Which rows of how many: "11–20 of 123".
export const range = ({ offset, rows, total }) => `${number(offset + 1)}–${number(offset + rows)} of ${number(total)}`;

// How long ago something happened, in one unit, so that it changes only as often as it matters.
export function ago(seconds) {
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= 2 * length) return `${number(Math.floor(seconds / length))} ${unit} ago`;
  }
  return `${Math.max(0, Math.floor(seconds))} s ago`;
}

// A duration in seconds as text; spans.py writes it in the same way.
export function duration(seconds) {
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${number(Math.floor(hours / 24))} days`;
}
