// The heat map: placements (and further axes) down, transports across, a square for each workload.
function grids() {
  const made = new Map();
  for (const cell of CELLS) {
    const axes = cell.axes || {};
    const grid = made.get(cell.matrix) || { rows: new Map(), columns: new Set() };
    made.set(cell.matrix, grid);
    const others = AXES.filter((axis) => axis !== "transport" && axis !== "workload" && axis in axes);
    const row = others.map((axis) => axes[axis]).join(" / ") || cell.id;
    const column = axes.transport || "-";
    grid.columns.add(column);
    if (!grid.rows.has(row)) grid.rows.set(row, new Map());
    const places = grid.rows.get(row);
    if (!places.has(column)) places.set(column, []);
    places.get(column).push(cell);
  }
  return made;
}
function square(cell) {
  const [letter, meaning] = VERDICTS[cell.verdict];
  const workload = (cell.axes || {}).workload || cell.id;
  const why = `${workload}: ${meaning}${cell.verdict === "ok" ? "" : `\n${cell.headline}`}\n${cell.id}`;
  return h("a", { class: cell.verdict, href: address({ cell: cell.id }), title: why, "aria-label": why, "data-cell": cell.id }, letter);
}
function drawMatrix(place) {
  place.replaceChildren(h("h2", {}, "What works, and what does not"));
  for (const [name, grid] of grids()) {
    if (FACTS.matrices.length > 1) place.append(h("h3", {}, name));
    const columns = [...grid.columns];
    const rows = [...grid.rows].map(([row, places]) => h("tr", {}, h("th", { scope: "row" }, row),
      columns.map((column) => h("td", {}, (places.get(column) || []).map(square)))));
    place.append(table(["", ...columns], rows, { class: "heat" }));
  }
  place.append(h("p", { class: "faint" }, Object.entries(VERDICTS).map(([name, [letter, meaning]]) =>
    h("span", {}, h("span", { class: `badge ${name}` }, letter), ` ${meaning}  `))));
}
function filterMatrix(place, matches) {
  for (const one of place.querySelectorAll("a[data-cell]")) {
    const inside = matches(BY_ID.get(one.dataset.cell));
    one.classList.toggle("out", !inside);
    one.href = address({ cell: one.dataset.cell });
  }
}
// Arrows move between squares: left and right along a row of squares, up and down to the nearest below or above.
function moveInMatrix(event) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const from = event.target.closest("a[data-cell]");
  if (!way || !from) return;
  event.preventDefault();
  const here = from.getBoundingClientRect();
  const [dx, dy] = way;
  let best = null;
  let least = Infinity;
  for (const one of from.closest("table").querySelectorAll("a[data-cell]")) {
    const there = one.getBoundingClientRect();
    const x = there.left - here.left;
    const y = there.top - here.top;
    const ahead = dx ? x * dx > 4 && Math.abs(y) < 4 : y * dy > 4;
    const far = dx ? Math.abs(x) : Math.abs(y) * 20 + Math.abs(x);
    if (ahead && far < least) [best, least] = [one, far];
  }
  if (best) best.focus();
}
