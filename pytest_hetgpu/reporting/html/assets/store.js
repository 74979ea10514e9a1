// What the page knows, and what of it is asked for: filters and the open cell live in the address.
const FACTS = JSON.parse(document.getElementById("facts").textContent);
const CELLS = FACTS.cells;
const BY_ID = new Map(CELLS.map((cell) => [cell.id, cell]));
const VERDICTS = {
  ok: [".", "works"], new: ["N", "new failure"], changed: ["C", "fails, but not as expected"],
  fixed: ["F", "works, but was expected to fail"], known: ["k", "known failure"], not_run: ["-", "not run"],
};
const AXES = [...new Set(CELLS.flatMap((cell) => Object.keys(cell.axes || {})))];
const FILTERS = [
  ...(FACTS.matrices.length > 1 ? [["matrix", (cell) => cell.matrix]] : []),
  ...(AXES.includes("site") ? [] : [["site", (cell) => cell.site || (FACTS.sites || {})[cell.matrix]]]),
  ...(AXES.includes("history") ? [] : [["history", (cell) => cell.state]]),
  ...AXES.map((axis) => [axis, (cell) => (cell.axes || {})[axis]]),
  ["verdict", (cell) => cell.verdict], ["outcome", (cell) => cell.kind], ["signature", (cell) => cell.key],
];
// An axis of one's own may be called as something else in the address is: then it is told apart.
const TAKEN = ["matrix", "verdict", "outcome", "signature", "text", "cell", "where", "site", "history", "run"];
const PARAMETER = new Map(FILTERS.map(([name], place) => [place, AXES.includes(name) && TAKEN.includes(name) ? `axis.${name}` : name]));

// The cells of a condition are bits: of thousands of cells a list would be long.
const CONDITIONS = FACTS.conditions || [];
const INSIDE = CONDITIONS.map((one) => {
  const bits = BigInt(`0x${one.cells}`);
  return new Set(CELLS.filter((_, place) => (bits >> BigInt(place)) & 1n));
});

function asked() {
  return new URLSearchParams(location.hash.slice(1));
}
function address(changes) {
  const now = asked();
  for (const [name, value] of Object.entries(changes)) {
    if (value) now.set(name, value);
    else now.delete(name);
  }
  return `#${now}`;
}
// Whoever types a text wants one step back, not one for each letter.
function ask(changes, replacing = false) {
  const to = address(changes);
  if (to === location.hash) return;
  if (replacing) location.replace(to);
  else location.hash = to;
}
function matcher() {
  const now = asked();
  const wanted = FILTERS.map(([, of], place) => [of, now.get(PARAMETER.get(place))]).filter(([, value]) => value);
  const inside = INSIDE[now.get("where")];
  const words = (now.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
  return (cell) => wanted.every(([of, value]) => of(cell) === value) && (!inside || inside.has(cell))
    && words.every((word) => `${cell.id} ${cell.headline} ${cell.key || ""}`.toLowerCase().includes(word));
}
