// Keys and clicks. A click, or Enter, opens the page of a run at the cell if that page is kept, else what the history has of it.
function choose(cell, place, event) {
  ask({ cell: cell.id, run: String(place) });
  follow();
  const page = pageOf(cell, place);
  if (page && (event.ctrlKey || event.metaKey || event.button === 1)) return void window.open(page, "_blank", "noopener");
  // Back from there, this page has the cell open.
  if (page) return void location.assign(page);
  PLACES.cell.focus({ preventScroll: true });
  PLACES.cell.scrollIntoView({ block: "nearest" });
}
function seenRows() {
  return [...PLACES.grid.querySelectorAll("canvas[data-cell]")].filter((one) => one.offsetParent);
}
function moveInGrid(event) {
  const canvas = event.target.closest("canvas[data-cell]");
  if (!canvas || event.altKey) return;
  const cell = BY_ID.get(canvas.dataset.cell);
  const now = asked();
  const mine = chosenRun(cell.id);
  const open = chosenRun(now.get("cell"));
  const [last, from] = [RUNS.length - 1, open === null ? RUNS.length : open];
  const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, Enter: mine === null ? newestOf(cell) : mine }[event.key];
  if (to === undefined && !across) return;
  event.preventDefault();
  if (event.key === "Enter") choose(cell, to, event);
  else if (across) {
    const every = seenRows();
    const next = every[every.indexOf(canvas) + across];
    if (!next) return;
    next.focus();
    // The open run moves along.
    if (mine !== null) ask({ cell: next.dataset.cell, run: String(mine) }, true);
  } else ask({ cell: cell.id, run: String(Math.max(0, Math.min(last, to))) }, true);
}
function clickInGrid(event) {
  const canvas = event.target.closest("canvas[data-cell]");
  if (!canvas || (event.type === "auxclick" && event.button !== 1)) return;
  choose(BY_ID.get(canvas.dataset.cell), runAt(canvas, event), event);
}
function closeCell() {
  const row = seenRows().find((one) => one.dataset.cell === asked().get("cell"));
  ask({ cell: "", run: "" });
  if (row) row.focus();
}
function listen() {
  PLACES.grid.addEventListener("keydown", moveInGrid);
  PLACES.grid.addEventListener("click", clickInGrid);
  PLACES.grid.addEventListener("auxclick", clickInGrid);
  PLACES.grid.addEventListener("pointermove", (event) => {
    const canvas = event.target.closest("canvas[data-cell]");
    if (canvas) canvas.title = describeRun(BY_ID.get(canvas.dataset.cell), runAt(canvas, event));
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    const [first] = seenRows();
    if (first) first.focus();
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.matches && event.target.matches("input, select, textarea");
    if (event.key === "Escape" && asked().get("cell")) closeCell();
    else if (event.key === "/" && !typing) {
      event.preventDefault();
      PLACES.filters.elements.text.focus();
    }
  });
  // On paper and in other colours all rows are painted anew.
  addEventListener("beforeprint", () => PLACES.grid.querySelectorAll("canvas[data-cell]").forEach(repaint));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    [...PAINTED].forEach(repaint);
    delete PLACES.cell.dataset.cell;
    follow();
  });
}
